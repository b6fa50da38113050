package gateway

import (
	"context"
	"errors"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/protobuf/reflect/protoreflect"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/collect"
	"stackd.example/fleet/history"
	"stackd.example/fleet/targets"
	"stackd.example/fleet/version"
)

// measures are what Prometheus reads. Calls have the names that a daemon's have. No label holds a pod, a selector or a caller.
type measures struct {
	registry *prometheus.Registry

	started, handled *prometheus.CounterVec
	handling         *prometheus.HistogramVec

	dumps              *prometheus.CounterVec
	duration           prometheus.Histogram
	asked, answered    prometheus.Counter
	unreachable        *prometheus.CounterVec
	shared             prometheus.Counter
	refusedConnections prometheus.Counter
	history            *prometheus.CounterVec
}

// seconds of calls and fleet dumps: up to the longest time that answers are waited for.
var seconds = []float64{0.005, 0.02, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60}

func newMeasures() *measures {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &measures{
		registry: prometheus.NewRegistry(),
		started:  counters("grpc_server_started_total", "Calls that were begun.", "grpc_type", "grpc_service", "grpc_method"),
		handled: counters("grpc_server_handled_total", "Calls that have ended, by their status.",
			"grpc_type", "grpc_service", "grpc_method", "grpc_code"),
		handling: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "grpc_server_handling_seconds", Buckets: seconds,
			Help: "How long calls took; streams until their end."}, []string{"grpc_type", "grpc_service", "grpc_method"}),
		dumps: counters("stackd_gateway_fleet_dumps_total", "Fleet dumps that were made.", "state"),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "stackd_gateway_fleet_dump_duration_seconds", Buckets: seconds,
			Help: "From the request to the last answer."}),
		asked:       counter("stackd_gateway_targets_asked_total", "Targets that were asked for dumps."),
		answered:    counter("stackd_gateway_targets_answered_total", "Targets that gave one."),
		unreachable: counters("stackd_gateway_targets_unreachable_total", "Targets that gave none, by why.", "reason"),
		shared:      counter("stackd_gateway_requests_shared_total", "Requests that got the fleet dump of another that ran already."),
		refusedConnections: counter("stackd_gateway_connections_refused_total",
			"Connections that were ended at once, as too many were open."),
		history: counters("stackd_gateway_history_questions_total", "Questions to the store of history, by what became of them.", "outcome"),
	}
	m.registry.MustRegister(m.started, m.handled, m.handling, m.dumps, m.duration, m.asked, m.answered, m.unreachable, m.shared,
		m.refusedConnections, m.history, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector(),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "stackd_build_info", Help: "Version of stackd.",
			ConstLabels: prometheus.Labels{"version": version.Version}}, func() float64 { return 1 }))
	m.beginAtZero()
	return m
}

// beginAtZero has the values there from the start, so that the first event shows as a change.
func (m *measures) beginAtZero() {
	for _, state := range []stackdv1.FleetDump_State{stackdv1.FleetDump_COMPLETE, stackdv1.FleetDump_PARTIAL} {
		m.dumps.WithLabelValues(strings.ToLower(state.String()))
	}
	reasons := stackdv1.Unreachable_REASON_UNSPECIFIED.Descriptor().Values()
	for i := range reasons.Len() {
		if reason := reasons.Get(i); reason.Number() != 0 {
			m.unreachable.WithLabelValues(strings.ToLower(string(reason.Name())))
		}
	}
	for outcome := range historyCodes {
		m.history.WithLabelValues(outcomeOf(outcome))
	}
	for _, outcome := range []string{"ok", "canceled"} {
		m.history.WithLabelValues(outcome)
	}
	methods := stackdv1.File_stackd_v1_fleet_proto.Services().ByName("Fleet").Methods()
	for i := range methods.Len() {
		kind, service, method := labelsOf(methods.Get(i))
		m.started.WithLabelValues(kind, service, method)
		m.handled.WithLabelValues(kind, service, method, codeName(nil))
	}
}

func labelsOf(method protoreflect.MethodDescriptor) (kind, service, name string) {
	kind = "unary"
	if method.IsStreamingServer() {
		kind = "server_stream"
	}
	return kind, string(method.Parent().FullName()), string(method.Name())
}

// codeName is as gRPC's libraries write it: "InvalidArgument".
func codeName(err error) string {
	if err == nil {
		return "OK"
	}
	var name strings.Builder
	for word := range strings.SplitSeq(codeOf(err).String(), "_") {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return name.String()
}

// begin counts a call; what it returns is called with the error that the call ends with.
func (m *measures) begin(spec connect.Spec) (end func(error)) {
	method, ok := spec.Schema.(protoreflect.MethodDescriptor)
	if !ok {
		return func(error) {}
	}
	kind, service, name := labelsOf(method)
	m.started.WithLabelValues(kind, service, name).Inc()
	begin := time.Now()
	return func(err error) {
		m.handled.WithLabelValues(kind, service, name, codeName(err)).Inc()
		m.handling.WithLabelValues(kind, service, name).Observe(time.Since(begin).Seconds())
	}
}

// outcomeOf is a reason as a label: "timed_out".
func outcomeOf(reason history.Reason) string {
	return strings.ToLower(strings.TrimPrefix(string(reason), "HISTORY_"))
}

// countHistory adds what became of a question to the store of history.
func (m *measures) countHistory(err error) {
	outcome := "ok"
	if fault := new(history.Fault); errors.As(err, &fault) {
		outcome = outcomeOf(fault.Reason)
	} else if err != nil {
		// The caller has left.
		outcome = "canceled"
	}
	m.history.WithLabelValues(outcome).Inc()
}

// count adds what became of a fleet dump and of its targets.
func (m *measures) count(dump *stackdv1.FleetDump, progress collect.Progress) {
	m.dumps.WithLabelValues(strings.ToLower(dump.GetState().String())).Inc()
	m.duration.Observe(dump.GetDuration().AsDuration().Seconds())
	m.asked.Add(float64(progress.Asked))
	m.answered.Add(float64(progress.Answered))
	for _, one := range progress.Unreachable {
		m.unreachable.WithLabelValues(strings.ToLower(one.GetReason().String())).Inc()
	}
}

var (
	discoveryTargets = prometheus.NewDesc("stackd_gateway_discovery_targets", "Targets that a source knows.", []string{"source"}, nil)
	discoveryAge     = prometheus.NewDesc("stackd_gateway_discovery_age_seconds",
		"For how long a source could not be read without a fault.", []string{"source"}, nil)
)

// For how long a scrape waits for a source.
const maxScrapeLook = 2 * time.Second

// discovery looks at the sources when it is scraped, so that their age does not depend on callers.
type discovery []*targets.Watched

func (d discovery) Describe(into chan<- *prometheus.Desc) {
	into <- discoveryTargets
	into <- discoveryAge
}

func (d discovery) Collect(into chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), maxScrapeLook)
	defer cancel()
	told := map[string]bool{}
	for _, source := range d {
		name := strings.ToValidUTF8(source.String(), "?")
		if told[name] {
			continue
		}
		told[name] = true
		// The state has what became of it.
		_, _ = source.Targets(ctx)
		count, age := source.State()
		into <- prometheus.MustNewConstMetric(discoveryTargets, prometheus.GaugeValue, float64(count), name)
		into <- prometheus.MustNewConstMetric(discoveryAge, prometheus.GaugeValue, age.Seconds(), name)
	}
}
