package gateway

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/collect"
	"stackd.example/fleet/history"
	"stackd.example/fleet/targets"
)

const (
	defaultTimeout = 5 * time.Second
	maxTimeout     = 60 * time.Second
	// What is left of a caller's deadline for merging and sending, at least.
	sendTime = 300 * time.Millisecond
	// Between two messages of progress.
	progressPause = 200 * time.Millisecond
	// In one of them; the dump names all.
	maxNewlyUnreachable = 1000

	defaultPage = 1000
	maxPage     = 10_000
)

// Service answers the calls of stackd.v1.Fleet.
type Service struct {
	sources  []targets.Source
	flights  flights
	measures *measures
	past     past
	// Calls of MergeStacks under way.
	merging chan struct{}
	// The targets were known once; the end has begun.
	hasKnown, ending atomic.Bool
}

// NewService returns a service of the targets that the sources know, and of the history in a store; nil: there is none.
func NewService(sources []targets.Source, collector *collect.Collector, store history.Store) *Service {
	measures := newMeasures()
	service := &Service{measures: measures, flights: flights{collector: collector, measures: measures, running: map[string]*flight{}},
		past: past{store: store, calls: make(chan struct{}, maxHistoryCalls), measures: measures}, merging: make(chan struct{}, maxMerges)}
	var watched discovery
	for _, source := range sources {
		one := targets.Watch(source)
		watched = append(watched, one)
		service.sources = append(service.sources, one)
	}
	measures.registry.MustRegister(watched, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "stackd_gateway_fleet_dumps_running",
		Help: "Fleet dumps that are being made."}, func() float64 { return float64(service.flights.count()) }))
	return service
}

func (s *Service) listAll(ctx context.Context) (targets.List, error) {
	list, err := targets.ListAll(ctx, s.sources)
	if err == nil {
		s.hasKnown.Store(true)
	}
	return list, err
}

func (s *Service) list(ctx context.Context, selector string) (targets.List, error) {
	chosen, err := selectorOf(ctx, selector)
	if err != nil {
		return targets.List{}, err
	}
	list, err := s.listAll(ctx)
	seen := viewOf(ctx)
	if seen != nil && len(list.Problems) > 0 {
		// Sources have names of Services in other namespaces.
		list.Problems = []string{"a source of targets has a problem: who sees all namespaces is told which"}
	}
	if err != nil {
		return list, failure(connect.CodeUnavailable, "TARGETS_UNAVAILABLE", strings.Join(list.Problems, "; "), nil)
	}
	list.Targets = chosen.Select(list.Targets)
	return list, seen.err()
}

// selectorOf means what the caller may see of a selector.
func selectorOf(ctx context.Context, text string) (targets.Selector, error) {
	chosen, err := targets.ParseSelector(text)
	if err != nil {
		return chosen, failure(connect.CodeInvalidArgument, "BAD_SELECTOR", err.Error(), nil)
	}
	return viewOf(ctx).within(chosen), nil
}

// ListTargets pages by name: a page goes on behind the last name of the one before.
func (s *Service) ListTargets(ctx context.Context, request *connect.Request[stackdv1.ListTargetsRequest]) (
	*connect.Response[stackdv1.ListTargetsResponse], error) {
	size := int(request.Msg.GetPageSize())
	if size < 0 {
		return nil, failure(connect.CodeInvalidArgument, "BAD_PAGE_SIZE", "page_size is negative", nil)
	}
	if size == 0 {
		size = defaultPage
	}
	list, err := s.list(ctx, request.Msg.GetSelector())
	if err != nil {
		return nil, err
	}
	response := &stackdv1.ListTargetsResponse{TotalSize: int32(len(list.Targets)), Problems: list.Problems}
	rest := list.Targets
	if token := request.Msg.GetPageToken(); token != "" {
		name, address, found := strings.Cut(token, " ")
		if !found {
			return nil, failure(connect.CodeInvalidArgument, "BAD_PAGE_TOKEN", "page_token is none that was given out", nil)
		}
		rest = rest[sort.Search(len(rest), func(i int) bool {
			return rest[i].Name() > name || rest[i].Name() == name && rest[i].Address > address
		}):]
	}
	page := rest[:min(size, maxPage, len(rest))]
	for _, target := range page {
		response.Targets = append(response.Targets, &stackdv1.Target{Name: target.Name(), Address: target.Address, Labels: target.Labels})
	}
	if len(page) < len(rest) {
		last := page[len(page)-1]
		response.NextPageToken = last.Name() + " " + last.Address
	}
	return connect.NewResponse(response), nil
}

// ends returns when answers are no longer waited for, and when at the latest the caller needs its own.
func ends(ctx context.Context, request *stackdv1.CreateFleetDumpRequest) (end, latest time.Time, err error) {
	timeout := defaultTimeout
	if asked := request.GetTimeout(); asked != nil {
		if !asked.IsValid() || asked.AsDuration() < 0 {
			return end, latest, failure(connect.CodeInvalidArgument, "BAD_TIMEOUT", "timeout is not a time span", nil)
		}
		if asked.AsDuration() > 0 {
			timeout = min(asked.AsDuration(), maxTimeout)
		}
	}
	now := time.Now()
	end, latest = now.Add(timeout), now.Add(maxTimeout)
	if deadline, has := ctx.Deadline(); has {
		left := deadline.Sub(now)
		latest = deadline.Add(-max(left/10, min(sendTime, left/2)))
		if latest.Before(end) {
			end = latest
		}
	}
	return end, latest, nil
}

// CreateFleetDump begins a fleet dump, or joins an equal one, and tells how it goes on.
func (s *Service) CreateFleetDump(ctx context.Context, request *connect.Request[stackdv1.CreateFleetDumpRequest],
	stream *connect.ServerStream[stackdv1.CreateFleetDumpResponse]) error {
	if len(request.Msg.GetProcess()) > 1024 {
		return failure(connect.CodeInvalidArgument, "BAD_NAME", "process is longer than 1024 bytes", nil)
	}
	end, latest, err := ends(ctx, request.Msg)
	if err != nil {
		return err
	}
	list, err := s.list(ctx, request.Msg.GetSelector())
	if err != nil {
		return err
	}
	if len(list.Targets) == 0 {
		return failure(connect.CodeFailedPrecondition, "NO_TARGET",
			fmt.Sprintf("no target fits the selector %q; ListTargets shows those that are known", request.Msg.GetSelector()), nil)
	}
	if slice := request.Msg.GetSlice(); slice != nil {
		if slice.GetCount() < 1 || slice.GetCount() > collect.MaxSlices || slice.GetIndex() < 0 || slice.GetIndex() >= slice.GetCount() {
			return failure(connect.CodeInvalidArgument, "BAD_SLICE",
				fmt.Sprintf("count is from 1 to %d, and index from 0 to count - 1", collect.MaxSlices), nil)
		}
		list.Targets = targets.Slice(list.Targets, int(slice.GetIndex()), int(slice.GetCount()))
	}
	joined := s.flights.join(viewOf(ctx), list.Targets, request.Msg, end, latest)
	if joined == nil {
		return failure(connect.CodeResourceExhausted, "TOO_MANY_CALLS",
			fmt.Sprintf("%d fleet dumps are made already: wait for one of them", maxFlights), nil)
	}
	defer s.flights.leave(joined)
	return follow(ctx, joined, stream)
}

func follow(ctx context.Context, one *flight, stream *connect.ServerStream[stackdv1.CreateFleetDumpResponse]) error {
	told := 0
	for {
		progress, dump, changed := one.look()
		if dump != nil {
			return stream.Send(&stackdv1.CreateFleetDumpResponse{Step: &stackdv1.CreateFleetDumpResponse_FleetDump{FleetDump: dump}})
		}
		if progress.Selected > 0 {
			until := min(told+maxNewlyUnreachable, len(progress.Unreachable))
			message := &stackdv1.FleetProgress{Selected: int32(progress.Selected), Asked: int32(progress.Asked),
				Answered: int32(progress.Answered), Unreachable: int32(len(progress.Unreachable)), NewlyUnreachable: progress.Unreachable[told:until]}
			told = until
			if err := stream.Send(&stackdv1.CreateFleetDumpResponse{Step: &stackdv1.CreateFleetDumpResponse_Progress{Progress: message}}); err != nil {
				return err
			}
		}
		if err := awaitChange(ctx, changed, one.done); err != nil {
			return err
		}
	}
}

// awaitChange returns at the next change, but not before a pause is over; at once when all is done.
func awaitChange(ctx context.Context, changed, done <-chan struct{}) error {
	pause := time.NewTimer(progressPause)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return nil
	case <-pause.C:
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
	case <-changed:
	}
	return nil
}

// GetFleetDump returns a dump that this gateway has made.
func (s *Service) GetFleetDump(ctx context.Context, request *connect.Request[stackdv1.GetFleetDumpRequest]) (
	*connect.Response[stackdv1.FleetDump], error) {
	name := request.Msg.GetName()
	if name != "" && !strings.HasPrefix(name, "fleetDumps/") {
		return nil, failure(connect.CodeInvalidArgument, "BAD_NAME", "the name of a fleet dump begins with fleetDumps/", nil)
	}
	seen := viewOf(ctx)
	dump := s.flights.find(name, seen)
	if err := seen.err(); err != nil {
		return nil, err
	}
	if dump == nil {
		return nil, failure(connect.CodeNotFound, "FLEET_DUMP_NOT_FOUND",
			"this gateway has no such fleet dump, or not any more: it keeps the last ones, in memory", nil)
	}
	return connect.NewResponse(dump), nil
}
