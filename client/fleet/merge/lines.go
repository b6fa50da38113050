package merge

import (
	"cmp"
	"fmt"
	"strings"

	"stackd.example/fleet/api/stackdv1"
)

// Nodes of the tree, and targets, that the text shows.
const (
	maxLineNodes       = 300
	maxLineUnreachable = 50
	maxLineDepth       = 40
)

// Lines renders a fleet dump as text for a terminal.
func Lines(dump *stackdv1.FleetDump) []string {
	var out lines
	out.head(dump)
	out.unreachable(dump)
	out.findings(dump)
	out.odd(dump)
	out.tree(dump)
	return out
}

type lines []string

func (l *lines) say(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

func (l *lines) head(dump *stackdv1.FleetDump) {
	selector := dump.GetRequest().GetSelector()
	if selector == "" {
		selector = "all targets"
	}
	counts := dump.GetCounts()
	l.say("%s of %s, %s: %d selected, %d answered, %d unreachable", cmp.Or(dump.GetName(), "fleet dump"), printable(selector, maxNameBytes), dump.GetState(),
		dump.GetSelected(), dump.GetAnswered(), dump.GetSelected()-dump.GetAnswered())
	l.say("%s, %s, %s", count(counts.GetPods(), "pod"), plural(counts.GetProcesses(), "process", "processes"), threadsOf(counts))
	for _, note := range dump.GetNotes() {
		l.say("note: %s", note)
	}
}

func (l *lines) unreachable(dump *stackdv1.FleetDump) {
	if len(dump.GetUnreachable()) == 0 {
		return
	}
	l.say("")
	l.say("unreachable")
	for i, one := range dump.GetUnreachable() {
		if i == maxLineUnreachable {
			l.say("  … and %d more", len(dump.GetUnreachable())+int(dump.GetOmittedUnreachableCount())-i)
			return
		}
		l.say("  %s  %s: %s", one.GetTarget(), one.GetReason(), one.GetExplanation())
	}
}

func (l *lines) findings(dump *stackdv1.FleetDump) {
	shown := false
	for _, one := range dump.GetFindings() {
		if badness(one.GetSeverity()) == 0 {
			continue
		}
		if !shown {
			l.say("")
			l.say("findings")
			shown = true
		}
		l.say("  %s in %s: %s", one.GetKind(), count(one.GetCounts().GetPods(), "pod"), one.GetExplanation())
		l.say("      %s", names(one.GetExamples(), one.GetCounts().GetPods()))
	}
}

func (l *lines) odd(dump *stackdv1.FleetDump) {
	if len(dump.GetOddPods()) == 0 {
		return
	}
	l.say("")
	l.say("odd ones out")
	for _, one := range dump.GetOddPods() {
		l.say("  %s: %s", count(one.GetPodCount(), "pod"), names(one.GetPods(), one.GetPodCount()))
		for _, difference := range one.GetDifferences() {
			l.say("      %s  %s (%d of %d pods)", differenceWords[difference.GetKind()], difference.GetWhat(), difference.GetPodsWithIt(),
				dump.GetCounts().GetPods())
		}
		if more := one.GetOmittedDifferenceCount(); more > 0 {
			l.say("      … and %d more differences", more)
		}
	}
	if more := dump.GetOmittedOddCount(); more > 0 {
		l.say("  … and %d more shapes", more)
	}
}

var differenceWords = map[stackdv1.OddPods_Difference_Kind]string{
	stackdv1.OddPods_Difference_HAS_FINDING:   "has the finding",
	stackdv1.OddPods_Difference_HAS_STACK:     "threads wait in",
	stackdv1.OddPods_Difference_HAS_PROCESS:   "has the process",
	stackdv1.OddPods_Difference_LACKS_FINDING: "lacks the finding",
	stackdv1.OddPods_Difference_LACKS_STACK:   "no thread waits in",
	stackdv1.OddPods_Difference_LACKS_PROCESS: "lacks the process",
}

// tree indents where the tree branches, and not for each call.
func (l *lines) tree(dump *stackdv1.FleetDump) {
	nodes := dump.GetNodes()
	if len(nodes) == 0 {
		return
	}
	l.say("")
	l.say("stacks: a caller stands above what it calls")
	l.say("%8s %8s %6s", "threads", "tasks", "pods")
	children := make([]int, len(nodes))
	for _, node := range nodes {
		if parent := node.GetParent(); parent >= 0 {
			children[parent]++
		}
	}
	depths := make([]int, len(nodes))
	for i, node := range nodes {
		if parent := node.GetParent(); parent >= 0 {
			depths[i] = depths[parent]
			if children[parent] > 1 || nodes[parent].GetInnermost().GetThreads()+nodes[parent].GetInnermost().GetTasks() > 0 {
				depths[i] = min(depths[i]+1, maxLineDepth)
			}
		}
		if i >= maxLineNodes {
			continue
		}
		counts := node.GetCounts()
		l.say("%8d %8d %6d  %s%s", counts.GetThreads(), counts.GetTasks(), counts.GetPods(), strings.Repeat("| ", depths[i]), node.GetFunction())
	}
	if more := len(nodes) - maxLineNodes + int(dump.GetOmittedNodeCount()); len(nodes) > maxLineNodes {
		l.say("… and %d more functions", more)
	}
}

func names(examples []*stackdv1.FleetExample, pods int64) string {
	var all []string
	for i, one := range examples {
		// A pod may have several processes.
		if i == 0 || one.GetPod() != examples[i-1].GetPod() {
			all = append(all, one.GetPod())
		}
	}
	text := strings.Join(all, ", ")
	if more := pods - int64(len(all)); more > 0 {
		text += fmt.Sprintf(", … and %d more", more)
	}
	return text
}

func threadsOf(counts *stackdv1.FleetCounts) string {
	text := count(counts.GetThreads(), "thread")
	if counts.GetTasks() > 0 {
		text += ", " + count(counts.GetTasks(), "task")
	}
	return text
}

func count(n int64, word string) string { return plural(n, word, word+"s") }

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
