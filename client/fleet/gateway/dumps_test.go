package gateway

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/api/stackdv1/stackdv1connect"
	"stackd.example/fleet/collect"
	"stackd.example/fleet/history"
	"stackd.example/fleet/targets"
)

const dumpName = "processes/1-1/dumps/20261121T031502123Z-1"

// stored has which pods have a dump of the name, or why they do not answer.
type stored map[string]error

func (s stored) Open(_ context.Context, target targets.Target, name string) (*stackdv1.Dump, error) {
	err, has := s[target.Pod()]
	if !has || err != nil || name != dumpName {
		return nil, err
	}
	return &stackdv1.Dump{Name: name, Notes: []string{target.Pod()}}, nil
}

func opening(t *testing.T, all fixedTargets, opener collect.Opener, store history.Store) (stackdv1connect.FleetClient, stackdv1connect.StackdClient) {
	t.Helper()
	access, err := OpenAccess("", nil)
	if err != nil {
		t.Fatal(err)
	}
	service := NewService([]targets.Source{all}, &collect.Collector{Opener: opener, Parallel: 2}, store)
	server := cleartext(t, handler(service, access, slog.New(slog.DiscardHandler)))
	return stackdv1connect.NewFleetClient(server.Client(), server.URL), stackdv1connect.NewStackdClient(server.Client(), server.URL)
}

func TestADumpIsOpenedAtItsDaemonWhereHistoryHasNone(t *testing.T) {
	all := fixedTargets{targetIn("shop", "a"), targetIn("shop", "b"), targetIn("pay", "c"), targetIn("pay", "d")}
	opener := stored{"a": nil, "c": nil, "d": errors.New("it is away")}
	damaged := &fixedStore{records: []history.Record{{Dump: dumpName, Digest: "sha256:x", Labels: map[string]string{"pod": "gone"}}}}
	for _, each := range []struct {
		store          history.Store
		name, selector string
		pod, reason    string
		words          string
	}{
		{nil, dumpName, "pod=a", "a", "", ""},
		{nil, dumpName, "pod!=a", "c", "", ""},
		{nil, "targets/pay/c/" + dumpName, "", "c", "", ""},
		{nil, "targets/shop/c/" + dumpName, "", "", "DUMP_NOT_FOUND", "no daemon fits"},
		{nil, dumpName, "", "", "DUMP_AMBIGUOUS", "2 pods"},
		{nil, dumpName, "pod=b", "", "DUMP_NOT_FOUND", "no history: it is started with --history-loki for that; no daemon that fits has it: 1 asked"},
		{nil, dumpName, "pod in (b,d)", "", "DUMP_NOT_FOUND", "1 of 2 daemons have not answered, as targets/pay/d: it is away"},
		{nil, "processes/1-1", "", "", "BAD_NAME", ""},
		{&fixedStore{}, dumpName, "pod=a", "a", "", ""},
		{&fixedStore{}, dumpName, "pod=b", "", "DUMP_NOT_FOUND", "--otlp-dumps"},
		{damaged, "targets/gone/" + dumpName, "", "", "DUMP_DAMAGED", ""},
		{damaged, "targets/shop/a/" + dumpName, "", "a", "", ""},
		{&fixedStore{fault: &history.Fault{Reason: history.Unavailable, Sentence: "away"}}, dumpName, "pod=a", "a", "", ""},
		{&fixedStore{fault: &history.Fault{Reason: history.Unavailable, Sentence: "away"}}, dumpName, "pod=b", "", "HISTORY_UNAVAILABLE", "away"},
	} {
		fleet, daemon := opening(t, all, opener, each.store)
		got, err := fleet.GetDump(t.Context(), connect.NewRequest(&stackdv1.GetHistoryDumpRequest{Name: each.name, Selector: each.selector}))
		if collect.ReasonIn(err) != each.reason || err != nil && !strings.Contains(err.Error(), each.words) {
			t.Errorf("%v: %v", each, err)
		}
		if err == nil && got.Msg.GetNotes()[0] != each.pod {
			t.Errorf("%v: of %v", each, got.Msg.GetNotes())
		}
		if each.selector == "" {
			same, err := daemon.GetDump(t.Context(), connect.NewRequest(&stackdv1.GetDumpRequest{Name: each.name}))
			if collect.ReasonIn(err) != each.reason || err == nil && same.Msg.GetNotes()[0] != each.pod {
				t.Errorf("as a daemon, %v: %v %v", each, same, err)
			}
		}
	}
}

func TestAGatewayIsNoDaemonBeyondThat(t *testing.T) {
	_, daemon := opening(t, nil, stored{}, nil)
	if _, err := daemon.ListProcesses(t.Context(), connect.NewRequest(&stackdv1.ListProcessesRequest{})); connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("%v", err)
	}
}

func TestTooManyDaemonsAreNotAskedForOneDump(t *testing.T) {
	var all fixedTargets
	for range maxOpened + 1 {
		all = append(all, targets.Target{Address: strings.Repeat("x", len(all)+1)})
	}
	fleet, _ := opening(t, all, stored{}, nil)
	_, err := fleet.GetDump(t.Context(), connect.NewRequest(&stackdv1.GetHistoryDumpRequest{Name: dumpName}))
	if err == nil || !strings.Contains(err.Error(), "1001 daemons are too many") {
		t.Errorf("%v", err)
	}
}
