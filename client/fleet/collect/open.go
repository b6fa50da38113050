package collect

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/api/stackdv1/stackdv1connect"
	"stackd.example/fleet/targets"
)

// Opener opens a dump that the daemon of a target has stored; nil: it has none of this name.
type Opener interface {
	Open(ctx context.Context, target targets.Target, name string) (*stackdv1.Dump, error)
}

// Open asks one daemon.
func (d *Daemons) Open(ctx context.Context, target targets.Target, name string) (*stackdv1.Dump, error) {
	client := stackdv1connect.NewStackdClient(d.client, d.scheme+"://"+target.Address, connect.WithGRPC(),
		connect.WithReadMaxBytes(maxAnswerBytes), connect.WithAcceptCompression("gzip", nil, nil))
	got, err := client.GetDump(ctx, connect.NewRequest(&stackdv1.GetDumpRequest{Name: name, View: stackdv1.DumpView_DUMP_VIEW_FULL}))
	switch {
	case connect.CodeOf(err) == connect.CodeNotFound:
		return nil, nil
	case err != nil:
		return nil, d.explained(err)
	case got.Msg.GetName() != name:
		return nil, fmt.Errorf("%w: asked for %s, it gives %.60q", errBadAnswer, name, got.Msg.GetName())
	}
	return got.Msg, nil
}

// Opened is what daemons have under one name.
type Opened struct {
	// Dump of one of the targets.
	Dump *stackdv1.Dump
	// Targets that have one, by name.
	Targets []string
	// Targets that have not answered, and why.
	Unreachable []*stackdv1.Unreachable
}

// Open asks the targets for a dump at once, until all have answered or the context ends.
func (c *Collector) Open(ctx context.Context, all []targets.Target, name string) Opened {
	type outcome struct {
		target targets.Target
		dump   *stackdv1.Dump
		err    error
	}
	slots := make(chan struct{}, c.Parallel)
	outcomes := make(chan outcome, len(all))
	for _, target := range all {
		go func() {
			one := outcome{target: target}
			if take(ctx, slots) {
				one.dump, one.err = c.Opener.Open(ctx, target, name)
				<-slots
			} else {
				one.err = ctx.Err()
			}
			outcomes <- one
		}()
	}
	var found Opened
	for range all {
		one := <-outcomes
		switch {
		case one.err != nil:
			found.Unreachable = append(found.Unreachable, unreachable(one.target, reasonOf(ctx, one.err)))
		case one.dump != nil:
			found.Dump = one.dump
			found.Targets = append(found.Targets, one.target.Name())
		}
	}
	slices.Sort(found.Targets)
	slices.SortFunc(found.Unreachable, func(a, b *stackdv1.Unreachable) int { return strings.Compare(a.Target, b.Target) })
	return found
}
