package gateway

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/api/stackdv1/stackdv1connect"
	"stackd.example/fleet/collect"
	"stackd.example/fleet/history"
	"stackd.example/fleet/merge"
	"stackd.example/fleet/targets"
)

// cluster has the namespaces that each token's owner may see; "" is all of them.
type cluster struct {
	mutex  sync.Mutex
	rights map[string][]string
	fault  error
	asked  []string
}

func (c *cluster) Review(_ context.Context, token string) (*Subject, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.asked = append(c.asked, "who "+token)
	if _, known := c.rights[token]; !known || c.fault != nil {
		return nil, c.fault
	}
	return &Subject{Name: token}, nil
}

func (c *cluster) May(_ context.Context, subject *Subject, namespace string) (bool, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.asked = append(c.asked, subject.Name+" in "+namespace)
	return slices.Contains(c.rights[subject.Name], namespace), c.fault
}

// set changes what there is, and forgets what was asked.
func (c *cluster) set(fault error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.fault, c.asked = fault, nil
}

// dumped answers for each target with one dump.
type dumped struct{}

func (dumped) Ask(_ context.Context, target targets.Target, _ *stackdv1.CreateFleetDumpRequest) (collect.Answer, error) {
	dump := &stackdv1.Dump{Name: "processes/1-1/dumps/a", State: stackdv1.Dump_COMPLETE}
	return collect.Answer{Pods: []merge.Pod{{Name: target.Pod(), Target: target.Name(), Dumps: []*stackdv1.Dump{dump}}}}, nil
}

func (dumped) Open(context.Context, targets.Target, string) (*stackdv1.Dump, error) { return nil, nil }

func targetIn(namespace, pod string) targets.Target {
	return targets.Target{Address: pod + ":7443", Labels: map[string]string{"namespace": namespace, "pod": pod}}
}

// guarded serves pods of two namespaces, and one without, to those whom the cluster knows.
func guarded(t *testing.T, known *cluster, store history.Store) (func(token string) stackdv1connect.FleetClient, *tokens, *bytes.Buffer) {
	t.Helper()
	access, err := OpenAccess("", nil)
	if err != nil {
		t.Fatal(err)
	}
	access.UseTokens(known)
	log := &bytes.Buffer{}
	all := fixedTargets{targetIn("shop", "a"), targetIn("shop", "b"), targetIn("pay", "c"), {Address: "10.0.0.1:7443"}}
	service := NewService([]targets.Source{all}, &collect.Collector{Asker: dumped{}, Opener: dumped{}, Parallel: 8}, store)
	server := cleartext(t, handler(service, access, slog.New(slog.NewTextHandler(log, nil))))
	return func(token string) stackdv1connect.FleetClient {
		return stackdv1connect.NewFleetClient(server.Client(), server.URL, connect.WithInterceptors(shown(token)))
	}, access.tokens, log
}

// shown sends a token with each call.
type shown string

func (s shown) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		request.Header().Set("Authorization", "Bearer "+string(s))
		return next(ctx, request)
	}
}

func (s shown) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		stream := next(ctx, spec)
		stream.RequestHeader().Set("Authorization", "Bearer "+string(s))
		return stream
	}
}

func (s shown) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func namesFor(t *testing.T, client stackdv1connect.FleetClient) string {
	t.Helper()
	listed, err := client.ListTargets(t.Context(), connect.NewRequest(&stackdv1.ListTargetsRequest{}))
	if err != nil {
		return collect.ReasonIn(err)
	}
	names := []string{}
	for _, target := range listed.Msg.Targets {
		names = append(names, target.Name)
	}
	if int(listed.Msg.TotalSize) != len(names) {
		t.Errorf("%d targets in all, %d shown", listed.Msg.TotalSize, len(names))
	}
	return strings.Join(names, " ")
}

func TestATokenShowsTheNamespacesOfItsOwner(t *testing.T) {
	known := &cluster{rights: map[string][]string{"all": {""}, "shop": {"shop"}, "none": nil}}
	as, _, log := guarded(t, known, nil)
	for token, want := range map[string]string{
		"all":  "targets/10.0.0.1:7443 targets/pay/c targets/shop/a targets/shop/b",
		"shop": "targets/shop/a targets/shop/b",
		"none": "", "forged": "BAD_TOKEN",
	} {
		if got := namesFor(t, as(token)); got != want {
			t.Errorf("%s sees %q", token, got)
		}
	}
	_, err := create(t.Context(), as("none"), &stackdv1.CreateFleetDumpRequest{Selector: "namespace=shop"})
	if collect.ReasonIn(err) != "NO_TARGET" {
		t.Errorf("%v", err)
	}
	dump := streamed(t, as("shop"), &stackdv1.CreateFleetDumpRequest{})
	if last := dump[len(dump)-1].GetFleetDump(); last.GetSelected() != 2 || last.GetState() != stackdv1.FleetDump_COMPLETE {
		t.Errorf("%v", last)
	}
	for _, line := range []string{`caller=token:shop role=dump method=CreateFleetDump resource="" status=OK`,
		`level=WARN msg=call caller=unauthenticated role=none method=ListTargets resource="" status=UNAUTHENTICATED reason=BAD_TOKEN`} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("no %q in %s", line, log)
		}
	}
	if strings.Contains(log.String(), "forged") {
		t.Error("a token is in the log")
	}
}

func TestADumpIsForThoseWhoSeeAllOfIt(t *testing.T) {
	known := &cluster{rights: map[string][]string{"all": {""}, "shop": {"shop"}, "pay": {"pay"}}}
	as, _, _ := guarded(t, known, nil)
	whole, err := create(t.Context(), as("all"), &stackdv1.CreateFleetDumpRequest{})
	if err != nil {
		t.Fatal(err)
	}
	mine, err := create(t.Context(), as("shop"), &stackdv1.CreateFleetDumpRequest{})
	if err != nil {
		t.Fatal(err)
	}
	get := func(token, name string) string {
		got, err := as(token).GetFleetDump(t.Context(), connect.NewRequest(&stackdv1.GetFleetDumpRequest{Name: name}))
		if err != nil {
			return collect.ReasonIn(err)
		}
		return got.Msg.Name
	}
	for _, each := range []struct{ token, name, want string }{
		{"all", whole, whole}, {"all", mine, mine}, {"shop", mine, mine}, {"shop", "", mine},
		{"shop", whole, "FLEET_DUMP_NOT_FOUND"}, {"pay", mine, "FLEET_DUMP_NOT_FOUND"}, {"pay", "", "FLEET_DUMP_NOT_FOUND"},
	} {
		if got := get(each.token, each.name); got != each.want {
			t.Errorf("%s gets %q for %q", each.token, got, each.name)
		}
	}
}

func TestHistoryIsThatOfTheNamespacesThatAreSeen(t *testing.T) {
	store := &fixedStore{}
	for i, namespace := range []string{"shop", "pay", ""} {
		store.records = append(store.records, history.Record{Time: time.Unix(1_000_000, 0), Fingerprint: fingerprint(i),
			Dump: "processes/1-1/dumps/20261121T031502123Z-1", Labels: map[string]string{"namespace": namespace, "pod": namespace}})
	}
	known := &cluster{rights: map[string][]string{"all": {""}, "shop": {"shop"}}}
	as, _, _ := guarded(t, known, store)
	for token, want := range map[string]int64{"all": 3, "shop": 1} {
		listed, err := crashes(as(token), &stackdv1.ListCrashesRequest{})
		if err != nil || listed.TotalCount != want {
			t.Errorf("%s: %v %v", token, listed, err)
		}
	}
	for i := range store.records {
		store.records[i].Digest = "sha256:x"
	}
	get := &stackdv1.GetHistoryDumpRequest{Name: store.records[0].Dump, Selector: "namespace=pay"}
	for token, want := range map[string]string{"all": "DUMP_DAMAGED", "shop": "DUMP_NOT_FOUND"} {
		if _, err := as(token).GetDump(t.Context(), connect.NewRequest(get)); collect.ReasonIn(err) != want {
			t.Errorf("%s: %v", token, err)
		}
	}
}

func TestWhatTheAPIServerSaysIsRememberedForAShortTime(t *testing.T) {
	known := &cluster{rights: map[string][]string{"shop": {"shop"}}}
	as, kept, _ := guarded(t, known, nil)
	want := namesFor(t, as("shop"))
	known.set(errors.New("it is away"))
	if got := namesFor(t, as("shop")); got != want || len(known.asked) != 0 {
		t.Errorf("%q, asked %v", got, known.asked)
	}
	for key, one := range kept.rights.known {
		one.until = time.Now()
		kept.rights.known[key] = one
	}
	if got := namesFor(t, as("shop")); got != "ACCESS_UNAVAILABLE" {
		t.Errorf("what is too old is believed: %q", got)
	}
	// Another caller is not mistaken for this one.
	if got := namesFor(t, as("other")); got != "ACCESS_UNAVAILABLE" {
		t.Errorf("%q", got)
	}
	known.set(nil)
	if got := namesFor(t, as("shop")); got != want {
		t.Errorf("a failure is remembered: %q", got)
	}
}

func TestTooManyAnswersAreForgotten(t *testing.T) {
	var all remembered[int]
	for i := range 3 * maxReviews {
		if _, err := all.get([32]byte{byte(i), byte(i >> 8), byte(i >> 16)}, func() (int, error) { return i, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if len(all.known) > maxReviews {
		t.Errorf("%d answers", len(all.known))
	}
}
