package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/targets"
)

// page is what a scraper or a kubelet gets.
func page(service *Service, path string) (int, string) {
	recorder := httptest.NewRecorder()
	probes(service).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	text, _ := io.ReadAll(recorder.Body)
	return recorder.Code, string(text)
}

// metric is the value of one line; NaN is none of ours.
func metric(t *testing.T, service *Service, name string) float64 {
	t.Helper()
	_, text := page(service, "/metrics")
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return number
		}
	}
	t.Fatalf("there is no %s in\n%s", name, text)
	return 0
}

func TestEachDumpIsCounted(t *testing.T) {
	daemon := &slowDaemon{let: make(chan struct{})}
	client, service := gatewayOf(t, daemon)
	request := &stackdv1.CreateFleetDumpRequest{Timeout: durationpb.New(30 * time.Second)}
	var done sync.WaitGroup
	for range 3 {
		done.Go(func() {
			if _, err := create(context.Background(), client, request); err != nil {
				t.Error(err)
			}
		})
	}
	await(t, "all wait for one", func() bool { return daemon.asked.Load() == 1 && waiting(service) == 3 })
	if running := metric(t, service, "stackd_gateway_fleet_dumps_running"); running != 1 {
		t.Errorf("%v are running", running)
	}
	close(daemon.let)
	done.Wait()
	if _, err := client.ListTargets(context.Background(), connect.NewRequest(&stackdv1.ListTargetsRequest{Selector: "a in b"})); err == nil {
		t.Error("a bad selector was taken")
	}
	of := func(method string) string {
		return `grpc_method="` + method + `",grpc_service="stackd.v1.Fleet",grpc_type=`
	}
	for name, want := range map[string]float64{
		"stackd_gateway_fleet_dumps_running":                                                      0,
		`stackd_gateway_fleet_dumps_total{state="complete"}`:                                      1,
		`stackd_gateway_fleet_dumps_total{state="partial"}`:                                       0,
		"stackd_gateway_fleet_dump_duration_seconds_count":                                        1,
		"stackd_gateway_requests_shared_total":                                                    2,
		"stackd_gateway_targets_asked_total":                                                      1,
		"stackd_gateway_targets_answered_total":                                                   1,
		`stackd_gateway_targets_unreachable_total{reason="timed_out"}`:                            0,
		`stackd_gateway_discovery_targets{source="fixed"}`:                                        1,
		`grpc_server_started_total{` + of("CreateFleetDump") + `"server_stream"}`:                 3,
		`grpc_server_handling_seconds_count{` + of("CreateFleetDump") + `"server_stream"}`:        3,
		`grpc_server_handled_total{grpc_code="OK",` + of("CreateFleetDump") + `"server_stream"}`:  3,
		`grpc_server_handled_total{grpc_code="InvalidArgument",` + of("ListTargets") + `"unary"}`: 1,
		`grpc_server_handled_total{grpc_code="OK",` + of("GetFleetDump") + `"unary"}`:             0,
	} {
		// The last line of a call is counted when its answer is out already.
		await(t, name, func() bool { return metric(t, service, name) == want })
	}
}

func TestWhoLeavesIsCountedAsCanceled(t *testing.T) {
	client, service := gatewayOf(t, &slowDaemon{let: make(chan struct{})})
	ctx, leave := context.WithCancel(context.Background())
	go create(ctx, client, &stackdv1.CreateFleetDumpRequest{Timeout: durationpb.New(time.Minute)})
	await(t, "a caller waits", func() bool { return waiting(service) == 1 })
	leave()
	await(t, "it is counted", func() bool {
		_, text := page(service, "/metrics")
		return strings.Contains(text, `grpc_code="Canceled"`) && !strings.Contains(text, `grpc_code="Unknown"`)
	})
}

// changingTargets gives what the test says.
type changingTargets struct {
	mutex sync.Mutex
	err   error
}

func (c *changingTargets) set(err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.err = err
}

func (c *changingTargets) Targets(context.Context) ([]targets.Target, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return nil, c.err
}

func (c *changingTargets) String() string { return "changing" }

func TestAGatewayIsReadyOnceItHasKnownItsTargets(t *testing.T) {
	source := &changingTargets{err: errors.New("the file is not there")}
	service := NewService([]targets.Source{source, source}, nil, nil)
	expect := func(path string, code int, word string) {
		t.Helper()
		if got, text := page(service, path); got != code || !strings.Contains(text, word) {
			t.Errorf("%s: %d %s", path, got, text)
		}
	}
	expect("/livez", http.StatusOK, "ok")
	expect("/readyz", http.StatusServiceUnavailable, "changing: the file is not there")
	const age = `stackd_gateway_discovery_age_seconds{source="changing"}`
	await(t, "it becomes older", func() bool { return metric(t, service, age) > 0.01 })
	source.set(nil)
	expect("/readyz", http.StatusOK, "ok")
	if seconds := metric(t, service, age); seconds > 5 {
		t.Errorf("%v s old", seconds)
	}
	source.set(errors.New("gone again"))
	expect("/readyz", http.StatusOK, "ok")
	service.ending.Store(true)
	expect("/readyz", http.StatusServiceUnavailable, "shutting down")
	expect("/", http.StatusNotFound, "")
}
