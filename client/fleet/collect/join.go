package collect

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/merge"
)

// MaxSlices is how many slices a fleet may be asked in.
const MaxSlices = 64

// Join makes one answer of those of slices, in any order. The zero value has none.
type Join struct{ sum total }

// Add takes the answer of one slice, or of several that were joined. Its error says why it does not fit the others.
func (j *Join) Add(dump *stackdv1.FleetDump) error {
	part := dump.GetPart()
	switch {
	case part == nil:
		return errors.New("it is no part of an answer: CreateFleetDump gives one where the request has a slice")
	case part.GetSliceCount() < 2 || part.GetSliceCount() > MaxSlices || len(part.GetSlices()) == 0:
		return fmt.Errorf("it has no slices, or more than %d", MaxSlices)
	case dump.GetSelected() < 0 || dump.GetAnswered() < 0 || dump.GetOmittedUnreachableCount() < 0 || part.GetDaemonNoteCount() < 0:
		return errors.New("it has negative counts")
	case !dump.GetCreateTime().IsValid() || !dump.GetDuration().IsValid():
		return errors.New("it has no time")
	}
	request := proto.CloneOf(dump.GetRequest())
	if request != nil {
		request.Slice = nil
	}
	first := j.sum.sliceCount == 0
	if !first && (j.sum.sliceCount != part.GetSliceCount() || !proto.Equal(j.sum.request, request)) {
		return errors.New("it answers another request than the parts before it")
	}
	known := slices.Clone(j.sum.slices)
	for _, one := range part.GetSlices() {
		if one < 0 || one >= part.GetSliceCount() || slices.Contains(known, one) {
			return fmt.Errorf("slice %d is there twice, or is none of %d", one, part.GetSliceCount())
		}
		known = append(known, one)
	}
	fleet, err := merge.FromDump(dump)
	if err != nil {
		return err
	}
	j.sum.request, j.sum.slices, j.sum.sliceCount = request, known, part.GetSliceCount()
	j.sum.fleet.Merge(fleet)
	j.add(dump, first)
	return nil
}

func (j *Join) add(dump *stackdv1.FleetDump, first bool) {
	sum := &j.sum
	sum.selected = plus(sum.selected, dump.GetSelected())
	sum.answered = plus(sum.answered, dump.GetAnswered())
	sum.unreachable = append(sum.unreachable, dump.GetUnreachable()...)
	sum.omittedUnreachable = plus(sum.omittedUnreachable, dump.GetOmittedUnreachableCount())
	sum.notes = append(sum.notes, dump.GetPart().GetDaemonNotes()...)
	sum.noteCount += min(dump.GetPart().GetDaemonNoteCount(), math.MaxInt32)
	begin := dump.GetCreateTime().AsTime()
	end := begin.Add(dump.GetDuration().AsDuration())
	if first {
		sum.begin, sum.end = begin, end
	}
	sum.begin, sum.end = earlier(sum.begin, begin), later(sum.end, end)
}

// Dump returns what there is: the whole answer, or a part again where slices are missing. Nothing may be added after.
func (j *Join) Dump() (*stackdv1.FleetDump, error) {
	if j.sum.sliceCount == 0 {
		return nil, errors.New("no part of an answer was sent")
	}
	dump := j.sum.dump()
	if dump.GetPart() == nil {
		dump.Lines = merge.Lines(dump)
	}
	return dump, nil
}

func plus(a, b int32) int32 { return int32(min(int64(a)+int64(b), math.MaxInt32)) }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
