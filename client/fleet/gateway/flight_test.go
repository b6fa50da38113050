package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/api/stackdv1/stackdv1connect"
	"stackd.example/fleet/collect"
	"stackd.example/fleet/targets"
)

// slowDaemon dumps when it is let.
type slowDaemon struct {
	stackdv1connect.UnimplementedStackdHandler
	let   chan struct{}
	asked atomic.Int32
	ended atomic.Int32
}

func (d *slowDaemon) ListProcesses(context.Context, *connect.Request[stackdv1.ListProcessesRequest]) (
	*connect.Response[stackdv1.ListProcessesResponse], error) {
	return connect.NewResponse(&stackdv1.ListProcessesResponse{Processes: []*stackdv1.Process{{Name: "processes/7-70"}}}), nil
}

func (d *slowDaemon) CreateDump(ctx context.Context, request *connect.Request[stackdv1.CreateDumpRequest]) (
	*connect.Response[stackdv1.Dump], error) {
	d.asked.Add(1)
	select {
	case <-d.let:
	case <-ctx.Done():
		d.ended.Add(1)
		return nil, ctx.Err()
	}
	return connect.NewResponse(&stackdv1.Dump{Name: "processes/7-70/dumps/a", State: stackdv1.Dump_COMPLETE}), nil
}

type fixedTargets []targets.Target

func (f fixedTargets) Targets(context.Context) ([]targets.Target, error) { return f, nil }
func (f fixedTargets) String() string                                    { return "fixed" }

func cleartext(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Config.Protocols.SetHTTP1(true)
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// gatewayOf serves the daemon as the only pod.
func gatewayOf(t *testing.T, daemon *slowDaemon) (stackdv1connect.FleetClient, *Service) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(stackdv1connect.NewStackdHandler(daemon))
	all := fixedTargets{{Address: cleartext(t, mux).Listener.Addr().String()}}
	daemons, err := collect.NewDaemons(collect.TLS{})
	if err != nil {
		t.Fatal(err)
	}
	access, err := OpenAccess("", nil)
	if err != nil {
		t.Fatal(err)
	}
	service := NewService([]targets.Source{all}, &collect.Collector{Asker: daemons, Parallel: 8}, nil)
	server := cleartext(t, handler(service, access, slog.New(slog.DiscardHandler)))
	return stackdv1connect.NewFleetClient(server.Client(), server.URL), service
}

// waiting is how many callers wait for dumps.
func waiting(service *Service) (callers int) {
	service.flights.mutex.Lock()
	defer service.flights.mutex.Unlock()
	for _, running := range service.flights.running {
		running.mutex.Lock()
		callers += running.waiting
		running.mutex.Unlock()
	}
	return callers
}

// create asks for a fleet dump; returns its name, or the error.
func create(ctx context.Context, client stackdv1connect.FleetClient, request *stackdv1.CreateFleetDumpRequest) (string, error) {
	stream, err := client.CreateFleetDump(ctx, connect.NewRequest(request))
	if err != nil {
		return "", err
	}
	defer stream.Close()
	name := ""
	for stream.Receive() {
		name = stream.Msg().GetFleetDump().GetName()
	}
	return name, stream.Err()
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestEqualRequestsShareOneDump(t *testing.T) {
	daemon := &slowDaemon{let: make(chan struct{})}
	client, service := gatewayOf(t, daemon)
	request := &stackdv1.CreateFleetDumpRequest{Timeout: durationpb.New(30 * time.Second)}
	var names sync.Map
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() {
			name, err := create(context.Background(), client, request)
			if err != nil {
				t.Error(err)
			}
			names.Store(name, true)
		})
	}
	await(t, "all wait for one question", func() bool { return daemon.asked.Load() == 1 && waiting(service) == 8 })
	// Another request is not the same.
	done.Go(func() {
		other := &stackdv1.CreateFleetDumpRequest{Timeout: durationpb.New(30 * time.Second), Process: "x"}
		name, err := create(context.Background(), client, other)
		if err != nil {
			t.Error(err)
		}
		names.Store(name, true)
	})
	await(t, "the other one asks too", func() bool { return daemon.asked.Load() == 2 })
	close(daemon.let)
	done.Wait()
	distinct := 0
	names.Range(func(any, any) bool { distinct++; return true })
	if distinct != 2 || daemon.asked.Load() != 2 {
		t.Errorf("%d dumps of %d questions", distinct, daemon.asked.Load())
	}
}

func TestADumpEndsWhenTheLastCallerHasLeft(t *testing.T) {
	daemon := &slowDaemon{let: make(chan struct{})}
	client, service := gatewayOf(t, daemon)
	request := &stackdv1.CreateFleetDumpRequest{Timeout: durationpb.New(60 * time.Second)}
	first, leaveFirst := context.WithCancel(context.Background())
	second, leaveSecond := context.WithCancel(context.Background())
	defer leaveSecond()
	var done sync.WaitGroup
	for _, ctx := range []context.Context{first, second} {
		done.Go(func() {
			if _, err := create(ctx, client, request); connect.CodeOf(err) != connect.CodeCanceled {
				t.Errorf("%v", err)
			}
		})
	}
	await(t, "both wait for one question", func() bool { return daemon.asked.Load() == 1 && waiting(service) == 2 })
	leaveFirst()
	await(t, "the first has left", func() bool { return waiting(service) == 1 })
	if daemon.ended.Load() != 0 {
		t.Error("the daemon was left alone while a caller waits")
	}
	leaveSecond()
	done.Wait()
	await(t, "the question has ended", func() bool { return daemon.ended.Load() == 1 })
}

func TestTooManyDumpsAreRefused(t *testing.T) {
	daemon := &slowDaemon{let: make(chan struct{})}
	client, _ := gatewayOf(t, daemon)
	var done sync.WaitGroup
	for i := range maxFlights {
		done.Go(func() {
			request := &stackdv1.CreateFleetDumpRequest{Timeout: durationpb.New(30 * time.Second), Process: fmt.Sprint(i)}
			if _, err := create(context.Background(), client, request); err != nil {
				t.Error(err)
			}
		})
	}
	await(t, "all are made", func() bool { return daemon.asked.Load() == maxFlights })
	_, err := create(context.Background(), client, &stackdv1.CreateFleetDumpRequest{})
	if connect.CodeOf(err) != connect.CodeResourceExhausted || collect.ReasonIn(err) != "TOO_MANY_CALLS" {
		t.Errorf("%v", err)
	}
	close(daemon.let)
	done.Wait()
}

func TestTheAnswerComesBeforeTheCallersDeadline(t *testing.T) {
	daemon := &slowDaemon{let: make(chan struct{})}
	client, _ := gatewayOf(t, daemon)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if name, err := create(ctx, client, &stackdv1.CreateFleetDumpRequest{Timeout: durationpb.New(time.Minute)}); err != nil || name == "" {
		t.Fatalf("%q %v", name, err)
	}
	kept, err := client.GetFleetDump(context.Background(), connect.NewRequest(&stackdv1.GetFleetDumpRequest{}))
	if err != nil || kept.Msg.State != stackdv1.FleetDump_PARTIAL || kept.Msg.Unreachable[0].Reason != stackdv1.Unreachable_TIMED_OUT {
		t.Errorf("%v %v", kept, err)
	}
}

func TestOnlyTheLastDumpsAreKept(t *testing.T) {
	var all flights
	for i := range maxKept + 5 {
		all.keep(keptDump{dump: &stackdv1.FleetDump{Name: fmt.Sprintf("fleetDumps/%d", i)}})
	}
	if all.find("fleetDumps/4", nil) != nil || all.find("fleetDumps/5", nil) == nil || all.find("", nil).GetName() != "fleetDumps/20" {
		t.Errorf("%d kept", len(all.kept))
	}
	large := &stackdv1.FleetDump{Lines: []string{strings.Repeat("x", maxKeptBytes)}}
	all.keep(keptDump{dump: large})
	if len(all.kept) != 1 || all.find("", nil) != large {
		t.Errorf("%d kept", len(all.kept))
	}
}

func TestTargetsArePaged(t *testing.T) {
	var all fixedTargets
	for i := range 25 {
		all = append(all, targets.Target{Address: fmt.Sprintf("10.0.0.%d:1", i), Labels: map[string]string{"pod": fmt.Sprintf("p%02d", i%20)}})
	}
	service := NewService([]targets.Source{all}, nil, nil)
	var addresses []string
	request := &stackdv1.ListTargetsRequest{PageSize: 7}
	for {
		response, err := service.ListTargets(context.Background(), connect.NewRequest(request))
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range response.Msg.Targets {
			addresses = append(addresses, target.Address)
		}
		if request.PageToken = response.Msg.NextPageToken; request.PageToken == "" {
			break
		}
	}
	distinct := map[string]bool{}
	for _, address := range addresses {
		distinct[address] = true
	}
	if len(addresses) != 25 || len(distinct) != 25 {
		t.Errorf("%v", addresses)
	}
}
