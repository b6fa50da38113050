package merge

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"stackd.example/fleet/api/stackdv1"
)

const (
	// What features may take in the answer of a slice, and shapes as much again.
	maxFeatureBytes = 3 << 17
	// Larger counts are not believed: sums must not overflow.
	maxCount = 1 << 50
)

// fillShapes writes what pods are compared by: of too many features those that most pods have.
func (f *Fleet) fillShapes(part *stackdv1.FleetPart) {
	part.OmittedFeatureCount, part.OmittedShapeCount = f.omittedFeatures, f.omittedShapes
	ids := slices.SortedFunc(maps.Keys(f.features), func(a, b featureID) int {
		return cmp.Or(cmp.Compare(f.features[b].pods, f.features[a].pods), compareIDs(a, b))
	})
	bytes := 0
	for i, id := range ids {
		if bytes += proto.Size(f.featureMessage(id)) + 10; bytes > maxFeatureBytes {
			part.OmittedFeatureCount += int64(len(ids) - i)
			ids = ids[:i]
			break
		}
	}
	slices.SortFunc(ids, compareIDs)
	places := make(map[featureID]int32, len(ids))
	for i, id := range ids {
		places[id] = int32(i)
		part.Features = append(part.Features, f.featureMessage(id))
	}
	bytes = 0
	for _, id := range slices.SortedFunc(maps.Keys(f.shapes), compareIDs) {
		one := f.shapes[id]
		message := &stackdv1.FleetPart_Shape{PodCount: one.count, Pods: examplesOf(one.pods)}
		for _, feature := range one.features {
			if place, kept := places[feature]; kept {
				message.Features = append(message.Features, place)
			}
		}
		if bytes += proto.Size(message) + 10; bytes > maxFeatureBytes {
			part.OmittedShapeCount += one.count
			continue
		}
		part.Shapes = append(part.Shapes, message)
	}
}

func (f *Fleet) featureMessage(id featureID) *stackdv1.FleetPart_Feature {
	one := f.features[id]
	return &stackdv1.FleetPart_Feature{Id: id[:], Kind: hasKinds[one.kind], What: one.what, Weight: one.weight, PodsWithIt: one.pods}
}

// FromDump returns what the answer of a slice was made from. Its error says what no gateway would have written.
func FromDump(dump *stackdv1.FleetDump) (*Fleet, error) {
	part := dump.GetPart()
	f := &Fleet{findings: map[string]*finding{}, features: map[featureID]*feature{}, shapes: map[featureID]*shape{}}
	if counts := dump.GetThreadCounts(); counts != nil {
		f.threadCounts = &stackdv1.ThreadCounts{}
		addThreadCounts(f.threadCounts, counts)
	}
	for _, one := range []struct {
		to   *int64
		from int64
	}{
		{&f.omittedNodes, int64(dump.GetOmittedNodeCount())}, {&f.partialDumps, part.GetPartialDumpCount()},
		{&f.cutThreads, part.GetCutThreadCount()}, {&f.omittedGroups, part.GetOmittedGroupCount()},
		{&f.uncountedFindings, part.GetUncountedFindingCount()}, {&f.omittedFindings, part.GetOmittedFindingCount()},
		{&f.omittedFeatures, part.GetOmittedFeatureCount()}, {&f.omittedShapes, part.GetOmittedShapeCount()},
	} {
		if !isCount(one.from) {
			return nil, fmt.Errorf("%d is no count", one.from)
		}
		*one.to = one.from
	}
	return f, errors.Join(f.readNodes(dump), f.readFindings(dump.GetFindings()), f.readShapes(part))
}

func isCount(n int64) bool { return n >= 0 && n <= maxCount }

func countsFrom(message *stackdv1.FleetCounts) (Counts, error) {
	counts := Counts{Pods: message.GetPods(), Processes: message.GetProcesses(), Threads: message.GetThreads(), Tasks: message.GetTasks()}
	if !isCount(counts.Pods) || !isCount(counts.Processes) || !isCount(counts.Threads) || !isCount(counts.Tasks) {
		return counts, fmt.Errorf("%v are no counts", message)
	}
	return counts, nil
}

// examplesFrom returns them in the order that merging needs.
func examplesFrom(limit int, messages []*stackdv1.FleetExample) []*Example {
	var all []*Example
	for _, one := range messages {
		all = firstOf(limit, all, []*Example{{Pod: one.GetPod(), Target: one.GetTarget(), Dump: one.GetDump(), Explanation: one.GetExplanation()}})
	}
	return all
}

// readNodes also checks that no function has fewer threads than what it called: what is cut later must stay a tree.
func (f *Fleet) readNodes(dump *stackdv1.FleetDump) (err error) {
	if f.root.counts, err = countsFrom(dump.GetCounts()); err != nil {
		return err
	}
	if len(dump.GetNodes()) > maxNodes {
		return fmt.Errorf("%d nodes are too many", len(dump.GetNodes()))
	}
	at := make([]*node, len(dump.GetNodes()))
	depths := make([]int, len(at))
	left := make([]Counts, len(at)+1)
	left[0] = f.root.counts
	for i, message := range dump.GetNodes() {
		parent := int(message.GetParent())
		if parent < -1 || parent >= i {
			return fmt.Errorf("node %d has the parent %d, which does not stand before it", i, parent)
		}
		above := &f.root
		if parent >= 0 {
			above, depths[i] = at[parent], depths[parent]+1
		}
		counts, err := countsFrom(message.GetCounts())
		innermost, err2 := countsFrom(message.GetInnermost())
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		left[parent+1].Threads -= counts.Threads
		left[parent+1].Tasks -= counts.Tasks
		left[i+1] = Counts{Threads: counts.Threads - innermost.Threads, Tasks: counts.Tasks - innermost.Tasks}
		if depths[i] >= maxDepth {
			return fmt.Errorf("node %d is deeper than %d", i, maxDepth)
		}
		at[i] = f.nodeOf(above, message, counts, innermost)
	}
	if i := slices.IndexFunc(left, func(rest Counts) bool { return rest.Threads < 0 || rest.Tasks < 0 }); i >= 0 {
		return fmt.Errorf("node %d has fewer threads or tasks than what it called", i-1)
	}
	return nil
}

func (f *Fleet) nodeOf(above *node, message *stackdv1.StackNode, counts, innermost Counts) *node {
	key := frameKey{printable(message.GetFunction(), maxNameBytes+40), printable(message.GetModule(), maxNameBytes)}
	one := above.child(key)
	if one == nil {
		f.nodes++
		one = above.add(key)
	}
	one.counts.add(counts)
	one.innermost.add(innermost)
	one.language = max(one.language, message.GetLanguage())
	one.examples = firstOf(maxNodeExamples, one.examples, examplesFrom(maxNodeExamples, message.GetExamples()))
	return one
}

func (f *Fleet) readFindings(messages []*stackdv1.FleetFinding) error {
	if len(messages) > maxFindings {
		return fmt.Errorf("%d findings are too many", len(messages))
	}
	one := &Fleet{findings: map[string]*finding{}}
	for _, message := range messages {
		counts, err := countsFrom(message.GetCounts())
		if err != nil {
			return err
		}
		read := &finding{kind: message.GetKind(), severity: message.GetSeverity(), counts: counts,
			explanation: printable(message.GetExplanation(), maxExplanationBytes), process: printable(message.GetProcess(), maxNameBytes),
			examples: examplesFrom(maxExamples, message.GetExamples())}
		one.findings[read.signature()] = read
		f.mergeFindings(one)
		clear(one.findings)
	}
	return nil
}

var kindsOf = map[stackdv1.OddPods_Difference_Kind]featureKind{
	stackdv1.OddPods_Difference_HAS_PROCESS: processFeature,
	stackdv1.OddPods_Difference_HAS_FINDING: findingFeature,
	stackdv1.OddPods_Difference_HAS_STACK:   stackFeature,
}

func (f *Fleet) readShapes(part *stackdv1.FleetPart) error {
	var ids []featureID
	for i, message := range part.GetFeatures() {
		kind, known := kindsOf[message.GetKind()]
		if len(message.GetId()) != len(featureID{}) || !known || message.GetWeight() < 0 || message.GetWeight() > harmWeight ||
			!isCount(message.GetPodsWithIt()) {
			return fmt.Errorf("feature %d is none", i)
		}
		id := featureID(message.GetId())
		if i > 0 && compareIDs(ids[i-1], id) >= 0 {
			return fmt.Errorf("feature %d stands before what is smaller", i)
		}
		ids = append(ids, id)
		f.features[id] = &feature{kind: kind, weight: message.GetWeight(), pods: message.GetPodsWithIt(),
			what: printable(message.GetWhat(), namedFunctions*(maxNameBytes+40))}
	}
	for i, message := range part.GetShapes() {
		one := &shape{count: message.GetPodCount(), pods: examplesFrom(maxExamples, message.GetPods())}
		if one.count < 1 || !isCount(one.count) || len(one.pods) == 0 {
			return fmt.Errorf("shape %d has no pods", i)
		}
		for j, place := range message.GetFeatures() {
			if place < 0 || int(place) >= len(ids) || j > 0 && message.GetFeatures()[j-1] >= place {
				return fmt.Errorf("shape %d has features that are none", i)
			}
			one.features = append(one.features, ids[place])
		}
		f.mergeShapes(&Fleet{shapes: map[featureID]*shape{one.id(): one}})
	}
	return nil
}
