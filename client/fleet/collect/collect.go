package collect

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/merge"
	"stackd.example/fleet/targets"
)

const (
	// A target that has not answered for so long no longer counts as one that is asked: hung pods do not keep the rest waiting.
	slowAfter = 500 * time.Millisecond
	// All calls at once, those to slow targets too: each may hold an answer in memory.
	maxCalls = 1024
)

// Answer is what one target gave.
type Answer struct {
	Pods []merge.Pod
	// What is missing, one sentence each.
	Notes []string
}

// Asker dumps the processes of one target that a request means. Without an error and without pods there is no process.
type Asker interface {
	Ask(ctx context.Context, target targets.Target, request *stackdv1.CreateFleetDumpRequest) (Answer, error)
}

// Collector makes fleet dumps.
type Collector struct {
	Asker Asker
	// Opener of stored dumps.
	Opener Opener
	// Targets that are asked at once.
	Parallel int
}

// Progress is told after each change, by one goroutine.
type Progress struct {
	Selected, Asked, Answered int
	// All so far, in the order in which they became so.
	Unreachable []*stackdv1.Unreachable
}

// outcome is what became of one target.
type outcome struct {
	target targets.Target
	fleet  *merge.Fleet
	notes  []string
	reason reason
}

// Collect asks the targets until the context ends. Each of them is in the answer, as answered or as unreachable.
func (c *Collector) Collect(ctx context.Context, all []targets.Target, request *stackdv1.CreateFleetDumpRequest,
	tell func(Progress)) *stackdv1.FleetDump {
	begin := time.Now()
	asked := make(chan struct{}, len(all))
	outcomes := make(chan outcome, len(all))
	go c.askAll(ctx, all, request, asked, outcomes)

	sum := total{request: request, begin: begin, selected: int32(len(all))}
	left := make(map[string]targets.Target, len(all))
	for _, target := range all {
		left[target.Address] = target
	}
	progress := Progress{Selected: len(all)}
	tell(progress)
	giveUp := ctx.Done()
	var grace <-chan time.Time
	for len(left) > 0 {
		select {
		case <-asked:
			progress.Asked++
			// Told with the next outcome: it comes within the time of one question.
			continue
		case one := <-outcomes:
			delete(left, one.target.Address)
			if one.fleet != nil {
				sum.fleet.Merge(one.fleet)
				sum.notes = append(sum.notes, one.notes...)
				progress.Answered++
			} else {
				progress.Unreachable = append(progress.Unreachable, unreachable(one.target, one.reason))
			}
		case <-giveUp:
			// What ended at this moment is taken.
			giveUp, grace = nil, time.After(200*time.Millisecond)
			continue
		case <-grace:
			for _, target := range left {
				progress.Unreachable = append(progress.Unreachable, unreachable(target, reasonOf(ctx, context.DeadlineExceeded)))
			}
			clear(left)
		}
		tell(progress)
	}
	sum.answered, sum.unreachable = int32(progress.Answered), slices.Clone(progress.Unreachable)
	sum.end, sum.noteCount = time.Now(), int64(len(sum.notes))
	if slice := request.GetSlice(); slice != nil {
		sum.slices, sum.sliceCount = []int32{slice.GetIndex()}, slice.GetCount()
	}
	return sum.dump()
}

func unreachable(target targets.Target, why reason) *stackdv1.Unreachable {
	return &stackdv1.Unreachable{Target: target.Name(), Reason: why.kind, Explanation: why.explanation}
}

// askAll begins with each target in turn, as slots become free.
func (c *Collector) askAll(ctx context.Context, all []targets.Target, request *stackdv1.CreateFleetDumpRequest,
	asked chan<- struct{}, outcomes chan<- outcome) {
	slots := make(chan struct{}, c.Parallel)
	calls := make(chan struct{}, maxCalls)
	for i, target := range all {
		if !take(ctx, slots) || !take(ctx, calls) {
			for _, late := range all[i:] {
				outcomes <- outcome{target: late, reason: reason{stackdv1.Unreachable_NOT_ASKED, "the time was over before its turn came"}}
			}
			return
		}
		asked <- struct{}{}
		release := sync.OnceFunc(func() { <-slots })
		slow := time.AfterFunc(slowAfter, release)
		go func() {
			outcomes <- c.askOne(ctx, target, request)
			slow.Stop()
			release()
			<-calls
		}()
	}
}

func take(ctx context.Context, slots chan struct{}) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case slots <- struct{}{}:
		if ctx.Err() == nil {
			return true
		}
		// A place that became free as the time was over is none.
		<-slots
		return false
	case <-ctx.Done():
		return false
	}
}

// askOne also builds the target's own tree: that work is done beside the others'.
func (c *Collector) askOne(ctx context.Context, target targets.Target, request *stackdv1.CreateFleetDumpRequest) (result outcome) {
	result.target = target
	// An answer that the code was not made for is this target's, not the end of the gateway.
	defer func() {
		if fault := recover(); fault != nil {
			result.fleet = nil
			result.reason = reason{stackdv1.Unreachable_FAILED, said(fmt.Errorf("a fault of the gateway: %v at %s", fault, debug.Stack()))}
		}
	}()
	got, err := c.Asker.Ask(ctx, target, request)
	if len(got.Pods) == 0 {
		result.reason = reasonOf(ctx, err)
		return result
	}
	result.notes = got.Notes
	result.fleet = &merge.Fleet{}
	for _, pod := range got.Pods {
		result.fleet.Merge(merge.FromPod(pod))
	}
	return result
}
