package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/api/stackdv1/stackdv1connect"
	"stackd.example/fleet/collect"
	"stackd.example/fleet/history"
)

// fixedStore has the same records for each question, newest first, or a fault.
type fixedStore struct {
	records []history.Record
	fault   error
	body    string
	// Held until it is let.
	let    chan struct{}
	asked  chan history.Question
	window history.Window
}

func (f *fixedStore) Records(ctx context.Context, question history.Question, each func(history.Record) bool) ([]string, error) {
	f.window = question.Window
	if f.let != nil {
		f.asked <- question
		select {
		case <-f.let:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	for _, record := range f.records {
		if !each(record) {
			break
		}
	}
	return nil, f.fault
}

func (f *fixedStore) Body(context.Context, history.Record) (string, error) { return f.body, f.fault }
func (f *fixedStore) String() string                                       { return "a store" }

func gatewayOver(t *testing.T, store history.Store) (stackdv1connect.FleetClient, *bytes.Buffer) {
	t.Helper()
	access, err := OpenAccess("", nil)
	if err != nil {
		t.Fatal(err)
	}
	log := &bytes.Buffer{}
	server := cleartext(t, handler(NewService(nil, nil, store), access, slog.New(slog.NewTextHandler(log, nil))))
	return stackdv1connect.NewFleetClient(server.Client(), server.URL), log
}

func fingerprint(number int) string { return fmt.Sprintf("%032x", number) }

func crashes(client stackdv1connect.FleetClient, request *stackdv1.ListCrashesRequest) (*stackdv1.ListCrashesResponse, error) {
	response, err := client.ListCrashes(context.Background(), connect.NewRequest(request))
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

func TestPagesOfHistoryGoOnBehindEachOther(t *testing.T) {
	store := &fixedStore{}
	for i := range 120 {
		store.records = append(store.records, history.Record{Time: time.Unix(1_000_000-int64(i/2), 0), Fingerprint: fingerprint(i),
			Dump: fmt.Sprint(i), Labels: map[string]string{"pod": "a"}})
	}
	client, _ := gatewayOver(t, store)
	seen := map[string]bool{}
	request := &stackdv1.ListCrashesRequest{}
	var first history.Window
	for pages := 1; ; pages++ {
		response, err := crashes(client, request)
		if err != nil || response.TotalSize != 120 || response.TotalCount != 120 {
			t.Fatalf("%v %v", response, err)
		}
		if pages == 1 {
			first = store.window
		}
		if !store.window.End.Equal(first.End) || !store.window.Begin.Equal(first.Begin) {
			t.Errorf("page %d is of %v, the first of %v", pages, store.window, first)
		}
		for _, one := range response.Groups {
			if seen[one.Fingerprint] {
				t.Errorf("%s comes twice", one.Fingerprint)
			}
			seen[one.Fingerprint] = true
		}
		if request.PageToken = response.NextPageToken; request.PageToken == "" {
			if pages != 3 || len(seen) != 120 {
				t.Errorf("%d groups in %d pages", len(seen), pages)
			}
			return
		}
	}
}

func TestAnAnswerStaysBelowTheLimitOfClients(t *testing.T) {
	store := &fixedStore{}
	for i := range 20_000 {
		store.records = append(store.records, history.Record{Time: time.Unix(1_000_000-int64(i), 0), Fingerprint: fingerprint(i % 900),
			Explanation: strings.Repeat("x", 1024), Dump: fmt.Sprint(i), Labels: map[string]string{"pod": strings.Repeat("p", 240) + fmt.Sprint(i)}})
	}
	client, _ := gatewayOver(t, store)
	response, err := crashes(client, &stackdv1.ListCrashesRequest{PageSize: 1000})
	if err != nil || response.NextPageToken == "" || len(response.Groups) < 300 {
		t.Fatalf("%d groups, %v", len(response.GetGroups()), err)
	}
}

func TestWindowsAreBounded(t *testing.T) {
	store := &fixedStore{}
	client, _ := gatewayOver(t, store)
	end := timestamppb.New(time.Unix(1_790_000_000, 5))
	for asked, want := range map[time.Duration]time.Duration{0: defaultWindow, time.Hour: time.Hour, 1000 * time.Hour: maxWindow} {
		if _, err := crashes(client, &stackdv1.ListCrashesRequest{Window: durationpb.New(asked), EndTime: end}); err != nil {
			t.Fatal(err)
		}
		if !store.window.End.Equal(end.AsTime()) || store.window.End.Sub(store.window.Begin) != want {
			t.Errorf("%v: %v", asked, store.window)
		}
	}
	if _, err := crashes(client, &stackdv1.ListCrashesRequest{}); err != nil || time.Since(store.window.End) > time.Minute {
		t.Errorf("%v %v", store.window, err)
	}
	for _, bad := range []*stackdv1.ListCrashesRequest{
		{Window: durationpb.New(-1)}, {EndTime: timestamppb.New(time.Unix(1, 0))}, {EndTime: timestamppb.New(time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC))},
		{EndTime: &timestamppb.Timestamp{Nanos: -1}}, {PageSize: -1}, {PageToken: "x"}, {PageToken: "-1 2 " + fingerprint(1)},
		{PageToken: "99999999999999999999 2 "}, {PageToken: "1 2 3"}, {Selector: "a in b"}, {Fingerprint: `" or "`}} {
		if _, err := crashes(client, bad); connect.CodeOf(err) != connect.CodeInvalidArgument || collect.ReasonIn(err) == "" {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestEachQuestionToTheStoreIsCounted(t *testing.T) {
	for outcome, fault := range map[string]error{"ok": nil, "unavailable": &history.Fault{Reason: history.Unavailable},
		"timed_out": &history.Fault{Reason: history.TimedOut}, "canceled": context.Canceled} {
		service := NewService(nil, nil, &fixedStore{fault: fault})
		_, _ = service.ListCrashes(t.Context(), connect.NewRequest(&stackdv1.ListCrashesRequest{}))
		_, _ = service.GetDump(t.Context(), connect.NewRequest(&stackdv1.GetHistoryDumpRequest{Name: dumpName}))
		counted := map[string]float64{"ok": 1, "dump_not_found": 1}
		if fault != nil {
			counted = map[string]float64{outcome: 2}
		}
		for _, each := range []string{"ok", "dump_not_found", "unavailable", "timed_out", "canceled"} {
			if got := metric(t, service, `stackd_gateway_history_questions_total{outcome="`+each+`"}`); got != counted[each] {
				t.Errorf("%v: %s %v", fault, each, got)
			}
		}
	}
}

func TestFaultsOfTheStoreHaveAStatusAndAReason(t *testing.T) {
	store := &fixedStore{}
	client, log := gatewayOver(t, store)
	name := "processes/1-1/dumps/20261121T020000000Z-1"
	for reason, code := range historyCodes {
		store.fault = &history.Fault{Reason: reason, Sentence: "a sentence", Pods: []string{"shop/a", "shop/b"}}
		_, listed := client.ListHangs(context.Background(), connect.NewRequest(&stackdv1.ListHangsRequest{}))
		_, got := client.GetDump(context.Background(), connect.NewRequest(&stackdv1.GetHistoryDumpRequest{Name: name}))
		for _, err := range []error{listed, got} {
			if connect.CodeOf(err) != code || collect.ReasonIn(err) != string(reason) || !strings.Contains(err.Error(), "a sentence") {
				t.Errorf("%v: %v", reason, err)
			}
		}
	}
	if !strings.Contains(log.String(), "method=GetDump resource="+name) {
		t.Error(log)
	}
	without, _ := gatewayOver(t, nil)
	if _, err := crashes(without, &stackdv1.ListCrashesRequest{}); connect.CodeOf(err) != connect.CodeFailedPrecondition ||
		collect.ReasonIn(err) != "NO_HISTORY" {
		t.Error(err)
	}
}

func TestCallsOverHistoryAreBoundedAndEndWithTheirCallers(t *testing.T) {
	store := &fixedStore{let: make(chan struct{}), asked: make(chan history.Question)}
	client, _ := gatewayOver(t, store)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	for range maxHistoryCalls {
		go func() {
			_, err := client.ListCrashes(ctx, connect.NewRequest(&stackdv1.ListCrashesRequest{}))
			ended <- err
		}()
		<-store.asked
	}
	if _, err := crashes(client, &stackdv1.ListCrashesRequest{}); collect.ReasonIn(err) != "TOO_MANY_CALLS" {
		t.Error(err)
	}
	cancel()
	for range maxHistoryCalls {
		if err := <-ended; !errors.Is(err, context.Canceled) && connect.CodeOf(err) != connect.CodeCanceled {
			t.Error(err)
		}
	}
	close(store.let)
	go func() {
		for range store.asked {
		}
	}()
	defer close(store.asked)
	await(t, "there is a place again", func() bool {
		_, err := crashes(client, &stackdv1.ListCrashesRequest{})
		return err == nil
	})
}
