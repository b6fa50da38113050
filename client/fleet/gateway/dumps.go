package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/api/stackdv1/stackdv1connect"
	"stackd.example/fleet/collect"
	"stackd.example/fleet/history"
	"stackd.example/fleet/targets"
)

const (
	// More daemons are not asked for one dump.
	maxOpened = 1000
	// Names of pods in an error.
	maxNamedPods = 10
)

// GetDump returns a dump of any pod. History comes first: that is one question, whatever the number of pods, and hung pods do not
// delay it. What history does not have the daemons are asked for, which keep all dumps and not only the first of a fingerprint.
func (s *Service) GetDump(ctx context.Context, request *connect.Request[stackdv1.GetHistoryDumpRequest]) (
	*connect.Response[stackdv1.Dump], error) {
	dump, err := s.open(ctx, request.Msg.GetName(), request.Msg.GetSelector())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(dump), nil
}

// asDaemon is as much of a daemon's API as a gateway has, so that clients of daemons open dumps here.
type asDaemon struct {
	stackdv1connect.UnimplementedStackdHandler
	service *Service
}

// GetDump returns the whole dump in each view.
func (a asDaemon) GetDump(ctx context.Context, request *connect.Request[stackdv1.GetDumpRequest]) (*connect.Response[stackdv1.Dump], error) {
	dump, err := a.service.open(ctx, request.Msg.GetName(), "")
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(dump), nil
}

// open takes "targets/shop/checkout-1/processes/…/dumps/…" too: of this pod alone.
func (s *Service) open(ctx context.Context, name, selector string) (*stackdv1.Dump, error) {
	chosen, err := selectorOf(ctx, selector)
	if err != nil {
		return nil, err
	}
	if before, after, found := strings.Cut(name, "/processes/"); found && strings.HasPrefix(before, "targets/") {
		chosen, name = chosen.Named(before), "processes/"+after
	}
	if !collect.IsDumpName("", name) {
		return nil, failure(connect.CodeInvalidArgument, "BAD_NAME",
			"the name of a dump is like processes/4711-1/dumps/20261121T031502123Z-1, behind that of a target or without", nil)
	}
	dump, missing := s.openPast(ctx, name, chosen)
	if dump != nil || collect.ReasonIn(missing) == string(history.Ambiguous) {
		return dump, missing
	}
	return s.openLive(ctx, name, chosen, missing)
}

// openPast has half of the time that is left.
func (s *Service) openPast(ctx context.Context, name string, chosen targets.Selector) (*stackdv1.Dump, error) {
	if deadline, has := ctx.Deadline(); has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	ctx, end, err := s.past.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	dump, err := history.Get(ctx, s.past.store, name, chosen)
	s.measures.countHistory(err)
	if err != nil {
		return nil, historyFailure(err)
	}
	return dump, nil
}

// openLive asks the daemons for what history does not have, which `missing` explains.
func (s *Service) openLive(ctx context.Context, name string, chosen targets.Selector, missing error) (*stackdv1.Dump, error) {
	list, err := s.listAll(ctx)
	asked := chosen.Select(list.Targets)
	if fault := viewOf(ctx).err(); fault != nil {
		return nil, fault
	}
	if err != nil || len(asked) == 0 {
		return nil, notFound(missing, "no daemon fits that could be asked")
	}
	if len(asked) > maxOpened {
		return nil, notFound(missing, fmt.Sprintf("%d daemons are too many to ask for one dump: name its pod", len(asked)))
	}
	until, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	found := s.flights.collector.Open(until, asked, name)
	switch {
	case len(found.Targets) == 1:
		return found.Dump, nil
	case len(found.Targets) > 1:
		return nil, failure(connect.CodeFailedPrecondition, string(history.Ambiguous),
			fmt.Sprintf("%d pods have a dump of this name: say which by the selector, or before the name", len(found.Targets)),
			map[string]string{"pods": strings.Join(found.Targets[:min(len(found.Targets), maxNamedPods)], ",")})
	case len(found.Unreachable) > 0:
		first := found.Unreachable[0]
		return nil, notFound(missing, fmt.Sprintf("%d of %d daemons have not answered, as %s: %s", len(found.Unreachable), len(asked),
			first.GetTarget(), first.GetExplanation()))
	}
	return nil, notFound(missing, fmt.Sprintf("no daemon that fits has it: %d asked", len(asked)))
}

// notFound says why history does not have a dump, and why no daemon gave it. That history could not be read stays an error of its
// own.
func notFound(missing error, live string) error {
	var past *connect.Error
	reason := collect.ReasonIn(missing)
	if !errors.As(missing, &past) || reason != string(history.NotFound) && reason != "NO_HISTORY" {
		return missing
	}
	return failure(connect.CodeNotFound, string(history.NotFound), past.Message()+"; "+live, nil)
}
