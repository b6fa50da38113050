package gateway

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/collect"
)

// Calls of MergeStacks at once: each has a tree in memory.
const maxMerges = 4

// MergeStacks joins what gateways answered of slices. It looks at nothing else.
func (s *Service) MergeStacks(_ context.Context, stream *connect.ClientStream[stackdv1.CreateFleetDumpResponse]) (
	*connect.Response[stackdv1.FleetDump], error) {
	select {
	case s.merging <- struct{}{}:
		defer func() { <-s.merging }()
	default:
		return nil, failure(connect.CodeResourceExhausted, "TOO_MANY_CALLS",
			fmt.Sprintf("%d calls of MergeStacks run already: wait for one of them", maxMerges), nil)
	}
	var joined collect.Join
	for stream.Receive() {
		part := stream.Msg().GetFleetDump()
		if part == nil {
			continue
		}
		if err := joined.Add(part); err != nil {
			return nil, failure(connect.CodeInvalidArgument, "BAD_PART", fmt.Sprintf("%.100q cannot be joined: %v", part.GetName(), err), nil)
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	dump, err := joined.Dump()
	if err != nil {
		return nil, failure(connect.CodeInvalidArgument, "BAD_PART", err.Error(), nil)
	}
	return connect.NewResponse(dump), nil
}
