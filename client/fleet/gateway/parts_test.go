package gateway

import (
	"context"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/api/stackdv1/stackdv1connect"
	"stackd.example/fleet/collect"
)

// streamed is what a caller gets for a request.
func streamed(t *testing.T, client stackdv1connect.FleetClient, request *stackdv1.CreateFleetDumpRequest) []*stackdv1.CreateFleetDumpResponse {
	t.Helper()
	stream, err := client.CreateFleetDump(t.Context(), connect.NewRequest(request))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var all []*stackdv1.CreateFleetDumpResponse
	for stream.Receive() {
		all = append(all, stream.Msg())
	}
	if stream.Err() != nil {
		t.Fatal(stream.Err())
	}
	return all
}

func merged(ctx context.Context, client stackdv1connect.FleetClient, parts ...*stackdv1.CreateFleetDumpResponse) (*stackdv1.FleetDump, error) {
	stream := client.MergeStacks(ctx)
	for _, part := range parts {
		if stream.Send(part) != nil {
			// The answer says why.
			break
		}
	}
	response, err := stream.CloseAndReceive()
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

func TestWhatIsStreamedOfSlicesIsMerged(t *testing.T) {
	daemon := &slowDaemon{let: make(chan struct{})}
	close(daemon.let)
	client, _ := gatewayOf(t, daemon)
	var parts []*stackdv1.CreateFleetDumpResponse
	for i := range int32(3) {
		parts = append(parts, streamed(t, client, &stackdv1.CreateFleetDumpRequest{Slice: &stackdv1.FleetSlice{Index: i, Count: 3}})...)
	}
	if daemon.asked.Load() != 1 {
		t.Errorf("the only pod was asked %d times", daemon.asked.Load())
	}
	dump, err := merged(t.Context(), client, parts...)
	if err != nil {
		t.Fatal(err)
	}
	if dump.State != stackdv1.FleetDump_COMPLETE || dump.Answered != 1 || dump.Name != "" || len(dump.Lines) == 0 || dump.Part != nil {
		t.Errorf("%v", dump)
	}
}

func TestSlicesAndPartsThatAreNoneAreRefused(t *testing.T) {
	daemon := &slowDaemon{let: make(chan struct{})}
	close(daemon.let)
	client, _ := gatewayOf(t, daemon)
	for _, slice := range []*stackdv1.FleetSlice{{}, {Index: 2, Count: 2}, {Index: -1, Count: 2}, {Count: collect.MaxSlices + 1}} {
		_, err := create(t.Context(), client, &stackdv1.CreateFleetDumpRequest{Slice: slice})
		if connect.CodeOf(err) != connect.CodeInvalidArgument || collect.ReasonIn(err) != "BAD_SLICE" {
			t.Errorf("%v: %v", slice, err)
		}
	}
	whole := streamed(t, client, &stackdv1.CreateFleetDumpRequest{})
	large := &stackdv1.CreateFleetDumpResponse{Step: &stackdv1.CreateFleetDumpResponse_FleetDump{
		FleetDump: &stackdv1.FleetDump{Notes: []string{strings.Repeat("x", maxPartBytes)}}}}
	for _, each := range []struct {
		code   connect.Code
		reason string
		parts  []*stackdv1.CreateFleetDumpResponse
	}{
		{connect.CodeInvalidArgument, "BAD_PART", nil},
		{connect.CodeInvalidArgument, "BAD_PART", whole},
		{connect.CodeResourceExhausted, "", []*stackdv1.CreateFleetDumpResponse{large}},
	} {
		_, err := merged(t.Context(), client, each.parts...)
		if connect.CodeOf(err) != each.code || collect.ReasonIn(err) != each.reason {
			t.Errorf("%v", err)
		}
	}
}

func TestMergesAreBoundedInNumber(t *testing.T) {
	client, service := gatewayOf(t, &slowDaemon{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range maxMerges {
		if err := client.MergeStacks(ctx).Send(&stackdv1.CreateFleetDumpResponse{}); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "all run", func() bool { return len(service.merging) == maxMerges })
	if _, err := merged(t.Context(), client); collect.ReasonIn(err) != "TOO_MANY_CALLS" {
		t.Errorf("%v", err)
	}
	cancel()
	await(t, "their places are free", func() bool { return len(service.merging) == 0 })
}
