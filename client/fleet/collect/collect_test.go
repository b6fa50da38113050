package collect

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/api/stackdv1/stackdv1connect"
	"stackd.example/fleet/targets"
)

// daemon answers as one of stackd does, unless a test has it otherwise.
type daemon struct {
	stackdv1connect.UnimplementedStackdHandler
	list func(ctx context.Context) (*stackdv1.ListProcessesResponse, error)
	dump func(ctx context.Context, process string) (*stackdv1.Dump, error)
}

func (d *daemon) ListProcesses(ctx context.Context, _ *connect.Request[stackdv1.ListProcessesRequest]) (
	*connect.Response[stackdv1.ListProcessesResponse], error) {
	if d.list != nil {
		response, err := d.list(ctx)
		if err != nil {
			return nil, err
		}
		return connect.NewResponse(response), nil
	}
	return connect.NewResponse(processes("processes/7-70")), nil
}

func (d *daemon) CreateDump(ctx context.Context, request *connect.Request[stackdv1.CreateDumpRequest]) (
	*connect.Response[stackdv1.Dump], error) {
	make := d.dump
	if make == nil {
		make = func(_ context.Context, process string) (*stackdv1.Dump, error) { return goodDump(process), nil }
	}
	process := request.Msg.GetProcess()
	if process == "" {
		only, err := d.onlyProcess(ctx)
		if err != nil {
			return nil, err
		}
		process = only
	}
	dump, err := make(ctx, process)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(dump), nil
}

func (d *daemon) GetDump(_ context.Context, request *connect.Request[stackdv1.GetDumpRequest]) (*connect.Response[stackdv1.Dump], error) {
	dump := goodDump(strings.TrimSuffix(request.Msg.GetName(), "/dumps/d1"))
	if request.Msg.GetView() != stackdv1.DumpView_DUMP_VIEW_FULL {
		dump.Groups = nil
	}
	return connect.NewResponse(dump), nil
}

// onlyProcess is the one that is meant where none is named.
func (d *daemon) onlyProcess(ctx context.Context) (string, error) {
	listed, err := d.ListProcesses(ctx, nil)
	if err != nil {
		return "", err
	}
	all := listed.Msg.GetProcesses()
	if len(all) == 1 {
		return all[0].GetName(), nil
	}
	reason := "PROCESS_AMBIGUOUS"
	if len(all) == 0 {
		reason = "NO_PROCESS"
	}
	failed := connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%d processes", len(all)))
	detail, err := connect.NewErrorDetail(&errdetails.ErrorInfo{Reason: reason, Domain: "stackd"})
	if err == nil {
		failed.AddDetail(detail)
	}
	return "", failed
}

func processes(names ...string) *stackdv1.ListProcessesResponse {
	response := &stackdv1.ListProcessesResponse{}
	for _, name := range names {
		response.Processes = append(response.Processes, &stackdv1.Process{Name: name})
	}
	return response
}

func goodDump(process string) *stackdv1.Dump {
	return &stackdv1.Dump{Name: process + "/dumps/d1", State: stackdv1.Dump_COMPLETE, Process: &stackdv1.Process{DisplayName: "checkout"},
		Groups: []*stackdv1.StackGroup{{ThreadCount: 4, Stack: &stackdv1.Stack{Frames: []*stackdv1.Frame{{Function: "read"}, {Function: "main"}}}}}}
}

// serve returns the address of a server that speaks HTTP/2 without TLS.
func serve(t *testing.T, handler http.Handler) string {
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
	return server.Listener.Addr().String()
}

func (d *daemon) serve(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(stackdv1connect.NewStackdHandler(d))
	return serve(t, mux)
}

func collected(t *testing.T, timeout time.Duration, parallel int, addresses ...string) *stackdv1.FleetDump {
	t.Helper()
	daemons, err := NewDaemons(TLS{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var all []targets.Target
	for i, address := range addresses {
		all = append(all, targets.Target{Address: address, Labels: map[string]string{"pod": fmt.Sprintf("pod-%d", i)}})
	}
	collector := &Collector{Asker: daemons, Parallel: parallel}
	return collector.Collect(ctx, all, &stackdv1.CreateFleetDumpRequest{}, func(Progress) {})
}

func reasonsOf(dump *stackdv1.FleetDump) map[string]string {
	reasons := map[string]string{}
	for _, one := range dump.Unreachable {
		reasons[one.Target] = one.Reason.String() + " " + one.Explanation
	}
	return reasons
}

// deadAddress has no listener.
func deadAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func TestEachTargetIsAnsweredOrUnreachableWithItsReason(t *testing.T) {
	until := func(ctx context.Context) { <-ctx.Done() }
	message := func(size uint32, endless bool) http.HandlerFunc {
		return func(writer http.ResponseWriter, request *http.Request) {
			writer.Header().Set("Content-Type", "application/grpc+proto")
			var head [5]byte
			binary.BigEndian.PutUint32(head[1:], size)
			writer.Write(head[:])
			for request.Context().Err() == nil && endless {
				if _, err := writer.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	for name, each := range map[string]struct{ address, want string }{
		"good":      {(&daemon{}).serve(t), ""},
		"dead":      {deadAddress(t), "NO_CONNECTION"},
		"no name":   {"nowhere.invalid:7443", "NO_CONNECTION"},
		"silent":    {silent.Addr().String(), "TIMED_OUT"},
		"1 GiB":     {serve(t, message(1<<30, true)), "TOO_LARGE"},
		"no end":    {serve(t, message(4<<20, true)), "TOO_LARGE|BAD_ANSWER"},
		"cut short": {serve(t, message(100, false)), "BAD_ANSWER|BROKE_OFF"},
		"HTML": {serve(t, http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(writer, "<html>welcome</html>")
		})), "BAD_ANSWER"},
		"hung": {(&daemon{dump: func(ctx context.Context, _ string) (*stackdv1.Dump, error) {
			until(ctx)
			return nil, ctx.Err()
		}}).serve(t), "TIMED_OUT"},
		"wrong process": {(&daemon{list: func(context.Context) (*stackdv1.ListProcessesResponse, error) {
			return processes("processes/../../etc"), nil
		}}).serve(t), "BAD_ANSWER"},
		"wrong dump": {(&daemon{dump: func(context.Context, string) (*stackdv1.Dump, error) {
			return goodDump("processes/x"), nil
		}}).serve(t), "BAD_ANSWER"},
		"dump of another": {(&daemon{
			list: func(context.Context) (*stackdv1.ListProcessesResponse, error) {
				return processes("processes/7-70", "processes/9-90"), nil
			},
			dump: func(context.Context, string) (*stackdv1.Dump, error) {
				return goodDump("processes/8-80"), nil
			}}).serve(t), "BAD_ANSWER"},
		"no process": {(&daemon{list: func(context.Context) (*stackdv1.ListProcessesResponse, error) {
			return processes(), nil
		}}).serve(t), "NO_PROCESS"},
		"no role": {(&daemon{list: func(context.Context) (*stackdv1.ListProcessesResponse, error) {
			return nil, connect.NewError(connect.CodePermissionDenied, fmt.Errorf("the role read is missing\x1b[2J"))
		}}).serve(t), "PERMISSION_DENIED"},
		"too often": {(&daemon{dump: func(context.Context, string) (*stackdv1.Dump, error) {
			return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("600 captures a minute"))
		}}).serve(t), "RATE_LIMITED"},
		"10 MB": {(&daemon{dump: func(_ context.Context, process string) (*stackdv1.Dump, error) {
			dump := goodDump(process)
			dump.Lines = []string{strings.Repeat("x", 10_000_000)}
			return dump, nil
		}}).serve(t), "TOO_LARGE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := 20 * time.Second
			if strings.Contains(each.want, "TIMED_OUT") {
				timeout = time.Second
			}
			dump := collected(t, timeout, 8, each.address)
			if each.want == "" {
				if dump.State != stackdv1.FleetDump_COMPLETE || dump.Answered != 1 || dump.Counts.Threads != 4 {
					t.Errorf("%v", dump)
				}
				return
			}
			kind, explanation, _ := strings.Cut(reasonsOf(dump)["targets/pod-0"], " ")
			if kind == "" || !strings.Contains(each.want, kind) || dump.State != stackdv1.FleetDump_PARTIAL {
				t.Errorf("%s: %s", kind, explanation)
			}
			if explanation == "" || strings.ContainsRune(explanation, '\x1b') || len(explanation) > maxSaidBytes+10 {
				t.Errorf("%q", explanation)
			}
		})
	}
}

func TestAMessageWhoseSizeIsALieIsNotReadToItsEnd(t *testing.T) {
	var sent atomic.Int64
	address := serve(t, http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Content-Type", "application/grpc+proto")
		writer.Write([]byte{0, 0x40, 0, 0, 0})
		for {
			n, err := writer.Write(make([]byte, 64<<10))
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	dump := collected(t, 30*time.Second, 1, address)
	if dump.Unreachable[0].Reason != stackdv1.Unreachable_TOO_LARGE || sent.Load() > 4*maxAnswerBytes {
		t.Errorf("%v after %d bytes", dump.Unreachable[0], sent.Load())
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	var visits atomic.Int32
	elsewhere := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	dump := collected(t, 30*time.Second, 1, serve(t, http.RedirectHandler("http://"+elsewhere+"/", http.StatusTemporaryRedirect)),
		serve(t, http.RedirectHandler("http://"+elsewhere+"/", http.StatusFound)))
	if visits.Load() != 0 || !strings.Contains(fmt.Sprint(reasonsOf(dump)), "BAD_ANSWER") {
		t.Errorf("%d visits: %v", visits.Load(), reasonsOf(dump))
	}
}

func TestHungTargetsDoNotKeepTheRestWaiting(t *testing.T) {
	hung := (&daemon{list: func(ctx context.Context) (*stackdv1.ListProcessesResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}).serve(t)
	good := (&daemon{}).serve(t)
	addresses := append(slices.Repeat([]string{hung}, 10), slices.Repeat([]string{good}, 20)...)
	dump := collected(t, 6*time.Second, 2, unique(t, addresses)...)
	if dump.Answered != 20 || len(dump.Unreachable) != 10 {
		t.Errorf("%d answered: %v", dump.Answered, reasonsOf(dump))
	}
}

// unique gives each target an address of its own that leads to the same server: a small proxy each.
func unique(t *testing.T, addresses []string) []string {
	t.Helper()
	var made []string
	for _, address := range addresses {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		go forward(listener, address)
		made = append(made, listener.Addr().String())
	}
	return made
}

func TestNoMoreAreAskedAtOnceThanAreAllowed(t *testing.T) {
	var now, most atomic.Int32
	busy := (&daemon{dump: func(_ context.Context, process string) (*stackdv1.Dump, error) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		time.Sleep(5 * time.Millisecond)
		return goodDump(process), nil
	}}).serve(t)
	dump := collected(t, time.Minute, 1, unique(t, slices.Repeat([]string{busy}, 40))...)
	// A target that takes longer than a slow one may is no longer counted, on a busy machine.
	if dump.Answered != 40 || most.Load() > 3 {
		t.Errorf("%d answered, %d at once: %v", dump.Answered, most.Load(), reasonsOf(dump))
	}
}

func TestWhoseTurnDoesNotComeIsNamed(t *testing.T) {
	hung := (&daemon{list: func(ctx context.Context) (*stackdv1.ListProcessesResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}).serve(t)
	dump := collected(t, 300*time.Millisecond, 1, unique(t, []string{hung, hung, hung})...)
	got := fmt.Sprint(reasonsOf(dump))
	if len(dump.Unreachable) != 3 || !strings.Contains(got, "TIMED_OUT") || !strings.Contains(got, "NOT_ASKED") {
		t.Errorf("%v", got)
	}
}

func TestADaemonOfAnOlderReleaseIsAskedForTheWholeDump(t *testing.T) {
	address := (&daemon{dump: func(_ context.Context, process string) (*stackdv1.Dump, error) {
		dump := goodDump(process)
		dump.Groups = nil
		dump.ThreadCounts = &stackdv1.ThreadCounts{Listed: 4, Captured: 4}
		return dump, nil
	}}).serve(t)
	if dump := collected(t, 20*time.Second, 1, address); dump.State != stackdv1.FleetDump_COMPLETE || dump.Counts.Threads != 4 {
		t.Errorf("%v", dump)
	}
}

func TestOneProcessThatFailsIsANote(t *testing.T) {
	address := (&daemon{
		list: func(context.Context) (*stackdv1.ListProcessesResponse, error) {
			return processes("processes/7-70", "processes/8-80"), nil
		},
		dump: func(_ context.Context, process string) (*stackdv1.Dump, error) {
			if process == "processes/8-80" {
				return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("it has ended"))
			}
			return goodDump(process), nil
		}}).serve(t)
	dump := collected(t, 20*time.Second, 1, address)
	if dump.State != stackdv1.FleetDump_PARTIAL || dump.Answered != 1 || len(dump.Notes) != 1 ||
		!strings.Contains(dump.Notes[0], "processes/8-80 was not dumped: not_found: it has ended") {
		t.Errorf("%v", dump)
	}
}
