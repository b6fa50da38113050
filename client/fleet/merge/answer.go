package merge

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"stackd.example/fleet/api/stackdv1"
)

const (
	// What nodes and findings of an answer may take; the rest of it, unreachable targets above all, has as much again.
	maxNodeBytes    = 3 << 19
	maxFindingBytes = 1 << 19
)

// Fill writes what was merged into an answer.
func (f *Fleet) Fill(dump *stackdv1.FleetDump) {
	omittedFindings := f.fillSum(dump)
	odd, omitted := f.odd()
	dump.OddPods, dump.OmittedOddCount = odd, int32(omitted)
	dump.Notes = append(dump.Notes, f.notes(omittedFindings)...)
}

// FillPart writes what was merged of some slices into their answer, with what FromDump needs.
func (f *Fleet) FillPart(dump *stackdv1.FleetDump, part *stackdv1.FleetPart) {
	omittedFindings := f.fillSum(dump)
	dump.Notes = append(dump.Notes, f.notes(omittedFindings)...)
	part.PartialDumpCount, part.CutThreadCount, part.OmittedGroupCount = f.partialDumps, f.cutThreads, f.omittedGroups
	part.UncountedFindingCount, part.OmittedFindingCount = f.uncountedFindings, omittedFindings
	f.fillShapes(part)
	dump.Part = part
}

// fillSum writes counts, findings and nodes, and returns how many findings are left out.
func (f *Fleet) fillSum(dump *stackdv1.FleetDump) (omittedFindings int64) {
	dump.Counts = countsOf(f.root.counts)
	dump.ThreadCounts = f.threadCounts
	omittedFindings = f.omittedFindings
	bytes := 0
	for i, one := range f.worstFirst() {
		message := &stackdv1.FleetFinding{Kind: one.kind, Severity: one.severity, Explanation: one.explanation, Process: one.process,
			Counts: countsOf(one.counts), Examples: examplesOf(one.examples)}
		if bytes += proto.Size(message) + 10; bytes > maxFindingBytes {
			omittedFindings += int64(len(f.findings) - i)
			break
		}
		dump.Findings = append(dump.Findings, message)
	}
	f.fillNodes(dump)
	return omittedFindings
}

// Complete is whether nothing is missing from what the pods answered.
func (f *Fleet) Complete() bool {
	return f.partialDumps == 0 && f.cutThreads == 0 && f.omittedGroups == 0
}

func (f *Fleet) notes(omittedFindings int64) []string {
	var notes []string
	for _, one := range []struct {
		count int64
		words string
	}{
		{omittedFindings, "%d findings are left out: those of fewest pods"},
		{f.partialDumps, "%d dumps are partial: some threads did not answer in time, or a process ended"},
		{f.cutThreads, "the stacks of %d threads and tasks are cut: there are more distinct stacks than an answer may have"},
		{f.omittedGroups, "daemons left %d groups of equal stacks out of their answers"},
		{f.uncountedFindings, "%d findings found no room and are not counted"},
		{f.omittedFeatures, "%d stacks found no room when pods were compared"},
		{f.omittedShapes, "%d pods were not compared: there are too many shapes"},
	} {
		if one.count > 0 {
			notes = append(notes, fmt.Sprintf(one.words, one.count))
		}
	}
	return notes
}

// fillNodes takes the nodes with most threads: a caller has at least as many as its callees, so what is kept is a tree.
func (f *Fleet) fillNodes(dump *stackdv1.FleetDump) {
	type ranked struct {
		at    *node
		depth int
	}
	var all []ranked
	var walk func(at *node, depth int)
	walk = func(at *node, depth int) {
		for _, child := range at.busiestFirst() {
			all = append(all, ranked{child, depth})
			walk(child, depth+1)
		}
	}
	walk(&f.root, 0)
	byWeight := slices.Clone(all)
	slices.SortStableFunc(byWeight, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.at.counts.Threads+b.at.counts.Tasks, a.at.counts.Threads+a.at.counts.Tasks), cmp.Compare(a.depth, b.depth))
	})
	kept := make(map[*node]*stackdv1.StackNode, len(all))
	bytes := 0
	for _, one := range byWeight {
		message := messageOf(one.at)
		// Each has a tag and a length before it, and the number of its parent.
		if bytes += proto.Size(message) + 10; bytes > maxNodeBytes {
			break
		}
		kept[one.at] = message
	}
	dump.OmittedNodeCount = int32(min(f.omittedNodes+int64(len(all)-len(kept)), math.MaxInt32))
	// The number of the last node of each depth.
	var path []int32
	for _, one := range all {
		message := kept[one.at]
		if message == nil {
			continue
		}
		message.Parent = -1
		if one.depth > 0 {
			message.Parent = path[one.depth-1]
		}
		path = append(path[:one.depth], int32(len(dump.Nodes)))
		dump.Nodes = append(dump.Nodes, message)
	}
}

func messageOf(at *node) *stackdv1.StackNode {
	return &stackdv1.StackNode{
		Function: at.frame.function, Module: at.frame.module, Language: at.language,
		Counts: countsOf(at.counts), Innermost: countsOf(at.innermost), Examples: examplesOf(at.examples)}
}

func countsOf(counts Counts) *stackdv1.FleetCounts {
	return &stackdv1.FleetCounts{Pods: counts.Pods, Processes: counts.Processes, Threads: counts.Threads, Tasks: counts.Tasks}
}

func examplesOf(examples []*Example) []*stackdv1.FleetExample {
	messages := make([]*stackdv1.FleetExample, 0, len(examples))
	for _, one := range examples {
		messages = append(messages, &stackdv1.FleetExample{Pod: one.Pod, Target: one.Target, Dump: one.Dump, Explanation: one.Explanation})
	}
	return messages
}
