package merge

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"stackd.example/fleet/api/stackdv1"
)

// More tasks of one group are not believed.
const maxGroupTasks = 1 << 30

// Pod is what one pod answered.
type Pod struct {
	// As discovery knows it.
	Name, Target string
	Dumps        []*stackdv1.Dump
}

// Fleet is the merged answer of any number of pods. The zero value is that of none.
type Fleet struct {
	threadCounts *stackdv1.ThreadCounts
	// Above the first functions of all threads: its counts are those of the fleet.
	root  node
	nodes int
	// Threads and tasks of stacks that found no room in the tree.
	cutThreads int64
	// Groups that the daemons had left out of their answers.
	omittedGroups int64
	partialDumps  int64
	findings      map[string]*finding
	features      map[featureID]*feature
	shapes        map[featureID]*shape
	// Findings, features and shapes that found no room.
	uncountedFindings, omittedFeatures, omittedShapes int64
	// What slices had left out of their answers.
	omittedFindings, omittedNodes int64
}

// FromPod returns the answer of one pod.
func FromPod(pod Pod) *Fleet {
	f := &Fleet{threadCounts: &stackdv1.ThreadCounts{}}
	dumps := slices.Clone(pod.Dumps)
	slices.SortFunc(dumps, func(a, b *stackdv1.Dump) int { return strings.Compare(a.GetName(), b.GetName()) })
	if len(dumps) == 0 {
		return f
	}
	f.root.counts.Pods = 1
	shape := newShapeOfPod()
	for i, dump := range dumps {
		example := &Example{Pod: pod.Name, Target: pod.Target, Dump: dump.GetName()}
		f.addDump(dump, i+1, example, shape)
	}
	f.addShape(shape, &Example{Pod: pod.Name, Target: pod.Target, Dump: dumps[0].GetName()})
	return f
}

func (f *Fleet) addDump(dump *stackdv1.Dump, number int, example *Example, shape *shapeOfPod) {
	f.root.counts.Processes++
	if dump.GetState() != stackdv1.Dump_COMPLETE {
		f.partialDumps++
	}
	f.omittedGroups += int64(max(0, dump.GetOmittedGroupCount()))
	addThreadCounts(f.threadCounts, dump.GetThreadCounts())
	shape.addProcess(dump.GetProcess().GetDisplayName())
	for _, group := range dump.GetGroups() {
		if group.GetIsAgent() {
			continue
		}
		keys := keysOf(group.GetStack().GetFrames())
		f.addGroup(group, keys, number, example)
		shape.addStack(group, keys)
	}
	for _, found := range dump.GetFindings() {
		f.addFinding(found, dump.GetProcess().GetDisplayName(), number, example, shape)
	}
}

// addGroup walks from the thread's first function to the innermost.
func (f *Fleet) addGroup(group *stackdv1.StackGroup, keys []frameKey, number int, example *Example) {
	counts := Counts{Threads: int64(max(0, group.GetThreadCount())), Tasks: min(max(0, group.GetTaskCount()), maxGroupTasks)}
	f.root.counts.Threads += counts.Threads
	f.root.counts.Tasks += counts.Tasks
	at := &f.root
	for i := len(keys) - 1; i >= 0; i-- {
		next := at.child(keys[i])
		if next == nil {
			if f.nodes >= maxPodNodes {
				f.cutThreads += counts.Threads + counts.Tasks
				return
			}
			f.nodes++
			next = at.add(keys[i])
		}
		at = next
		at.language = max(at.language, group.GetStack().GetFrames()[i].GetLanguage())
		at.counts.see(counts, number, &at.countedIn)
		// Dumps come in their order, so what was seen last is the last.
		if n := len(at.examples); n < maxNodeExamples && (n == 0 || at.examples[n-1] != example) {
			at.examples = append(at.examples, example)
		}
	}
	if at != &f.root {
		at.innermost.see(counts, number, &at.innermostIn)
	}
}

// see adds threads and tasks each time, and a process once for each dump of the pod.
func (c *Counts) see(counts Counts, number int, last *int) {
	c.Pods = 1
	c.Threads += counts.Threads
	c.Tasks += counts.Tasks
	if *last != number {
		c.Processes++
		*last = number
	}
}

// Merge adds the answer of other pods. `other` may not be used after.
func (f *Fleet) Merge(other *Fleet) {
	if other.threadCounts != nil {
		if f.threadCounts == nil {
			f.threadCounts = &stackdv1.ThreadCounts{}
		}
		addThreadCounts(f.threadCounts, other.threadCounts)
	}
	f.cutThreads += other.cutThreads
	f.omittedGroups += other.omittedGroups
	f.partialDumps += other.partialDumps
	f.uncountedFindings += other.uncountedFindings
	f.omittedFindings += other.omittedFindings
	f.omittedNodes += other.omittedNodes
	f.omittedFeatures += other.omittedFeatures
	f.omittedShapes += other.omittedShapes

	room := maxNodes - f.nodes
	before := room
	f.root.merge(&other.root, &room, &f.cutThreads)
	f.nodes += before - room
	f.mergeFindings(other)
	f.mergeShapes(other)
}

// Pods is how many pods have answered.
func (f *Fleet) Pods() int64 { return f.root.counts.Pods }

// A daemon may say anything: negative numbers count as none.
func addThreadCounts(sum, counts *stackdv1.ThreadCounts) {
	if counts == nil {
		return
	}
	counts = proto.CloneOf(counts)
	for _, field := range []struct{ to, from *int32 }{
		{&sum.Listed, &counts.Listed}, {&sum.Captured, &counts.Captured}, {&sum.SignalBlocked, &counts.SignalBlocked},
		{&sum.Uninterruptible, &counts.Uninterruptible}, {&sum.Stopped, &counts.Stopped}, {&sum.Exited, &counts.Exited},
		{&sum.TimedOut, &counts.TimedOut}, {&sum.RingFull, &counts.RingFull}, {&sum.SignalQueueFull, &counts.SignalQueueFull},
		{&sum.AgentFault, &counts.AgentFault}, {&sum.Running, &counts.Running},
	} {
		*field.to = int32(min(int64(*field.to)+int64(max(0, *field.from)), 1<<31-1))
	}
}
