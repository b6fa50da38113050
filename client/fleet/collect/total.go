package collect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/merge"
)

const (
	// Notes of an answer, and what its unreachable targets may take.
	maxNotes            = 50
	maxUnreachableBytes = 1 << 20
)

// total is what an answer is made of.
type total struct {
	request            *stackdv1.CreateFleetDumpRequest
	fleet              merge.Fleet
	selected, answered int32
	unreachable        []*stackdv1.Unreachable
	// Targets beyond that list.
	omittedUnreachable int32
	// What daemons said is missing; of many the first by alphabet.
	notes      []string
	noteCount  int64
	begin, end time.Time
	// Indexes of the slices in the answer; without slices it is the whole.
	slices     []int32
	sliceCount int32
}

func (t *total) isWhole() bool { return len(t.slices) == int(t.sliceCount) }

// dump writes the answer: of all slices, or of some for MergeStacks.
func (t *total) dump() *stackdv1.FleetDump {
	t.sort()
	dump := &stackdv1.FleetDump{
		Request: t.request, CreateTime: timestamppb.New(t.begin), Duration: durationpb.New(t.end.Sub(t.begin)), Selected: t.selected,
		Answered: t.answered, State: stackdv1.FleetDump_PARTIAL, Unreachable: t.unreachable, OmittedUnreachableCount: t.omittedUnreachable}
	dump.Notes = slices.Clone(t.notes)
	if more := t.noteCount - int64(len(t.notes)); more > 0 {
		dump.Notes = append(dump.Notes, fmt.Sprintf("and %d more such notes", more))
	}
	if !t.isWhole() {
		dump.Notes = append(dump.Notes, fmt.Sprintf("%d of %d slices of the targets are in it", len(t.slices), t.sliceCount))
		t.fleet.FillPart(dump, &stackdv1.FleetPart{Slices: t.slices, SliceCount: t.sliceCount, DaemonNotes: t.notes, DaemonNoteCount: t.noteCount})
		return dump
	}
	if t.noteCount == 0 && len(t.unreachable) == 0 && t.omittedUnreachable == 0 && t.fleet.Complete() {
		dump.State = stackdv1.FleetDump_COMPLETE
	}
	t.fleet.Fill(dump)
	return dump
}

// sort puts all in the order of an answer, and cuts what is too much of it.
func (t *total) sort() {
	slices.SortFunc(t.unreachable, func(a, b *stackdv1.Unreachable) int {
		return cmp.Or(strings.Compare(a.Target, b.Target), strings.Compare(a.Explanation, b.Explanation), cmp.Compare(a.Reason, b.Reason))
	})
	bytes := 0
	for i, one := range t.unreachable {
		if bytes += proto.Size(one) + 10; bytes > maxUnreachableBytes {
			t.omittedUnreachable += int32(len(t.unreachable) - i)
			t.unreachable = t.unreachable[:i]
			break
		}
	}
	slices.Sort(t.notes)
	t.notes = t.notes[:min(len(t.notes), maxNotes)]
	slices.Sort(t.slices)
}
