// Package merge makes one answer of the dumps of many pods.
//
// FromPod takes the dumps of one pod, and Merge joins two answers. In any order and any tree of gateways the result is the same.
// Its size depends on distinct stacks and shapes, not on pods. What the dumps say comes from the network: lengths, depths and numbers
// are bounded here, and what is left out is counted.
package merge

import (
	"cmp"
	"slices"
	"strings"

	"stackd.example/fleet/api/stackdv1"
)

const (
	// Examples of a node of the tree.
	maxNodeExamples = 3
	// Examples of findings and shapes.
	maxExamples = 10
	// Deeper frames, the outermost, are left out.
	maxDepth = 512
	// Nodes of all pods together, and of one.
	maxNodes    = 200_000
	maxPodNodes = 20_000
)

// Example names a process in which something was seen.
type Example struct {
	Pod, Target, Dump, Explanation string
}

func (e *Example) compare(other *Example) int {
	return cmp.Or(strings.Compare(e.Pod, other.Pod), strings.Compare(e.Target, other.Target),
		strings.Compare(e.Dump, other.Dump), strings.Compare(e.Explanation, other.Explanation))
}

// firstOf returns the first `limit` of both, in order and without equal ones: which they are does not depend on who was first.
func firstOf(limit int, a, b []*Example) []*Example {
	merged := make([]*Example, 0, min(limit, len(a)+len(b)))
	for len(merged) < limit && len(a)+len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].compare(b[0]) < 0:
			merged, a = append(merged, a[0]), a[1:]
		case len(a) == 0 || a[0].compare(b[0]) > 0:
			merged, b = append(merged, b[0]), b[1:]
		default:
			b = b[1:]
		}
	}
	return merged
}

// Counts says how many saw something.
type Counts struct {
	Pods, Processes, Threads, Tasks int64
}

func (c *Counts) add(other Counts) {
	c.Pods += other.Pods
	c.Processes += other.Processes
	c.Threads += other.Threads
	c.Tasks += other.Tasks
}

// A frame as the tree tells frames apart.
type frameKey struct {
	function, module string
}

// node is a function on the way from the root; its children are what it called.
type node struct {
	frame     frameKey
	language  stackdv1.Language
	counts    Counts
	innermost Counts
	examples  []*Example
	children  map[frameKey]*node
	// While a pod's own tree is built: the dump that was counted last, one more than its index.
	countedIn, innermostIn int
}

func (n *node) child(key frameKey) *node { return n.children[key] }

func (n *node) add(key frameKey) *node {
	if n.children == nil {
		n.children = make(map[frameKey]*node, 1)
	}
	child := &node{frame: key}
	n.children[key] = child
	return child
}

// merge adds the tree of `other`. `room` is how many nodes may still be made; the threads of what finds no room are counted.
func (n *node) merge(other *node, room *int, cutThreads *int64) {
	n.counts.add(other.counts)
	n.innermost.add(other.innermost)
	n.language = max(n.language, other.language)
	n.examples = firstOf(maxNodeExamples, n.examples, other.examples)
	for _, key := range sortedKeys(other.children) {
		theirs := other.children[key]
		ours := n.child(key)
		if ours == nil {
			if *room <= 0 {
				*cutThreads += theirs.counts.Threads + theirs.counts.Tasks
				continue
			}
			*room--
			ours = n.add(key)
		}
		ours.merge(theirs, room, cutThreads)
	}
}

func sortedKeys(children map[frameKey]*node) []frameKey {
	keys := make([]frameKey, 0, len(children))
	for key := range children {
		keys = append(keys, key)
	}
	if len(keys) > 1 {
		slices.SortFunc(keys, func(a, b frameKey) int {
			return cmp.Or(strings.Compare(a.function, b.function), strings.Compare(a.module, b.module))
		})
	}
	return keys
}

// busiestFirst returns the children in the order of an answer.
func (n *node) busiestFirst() []*node {
	children := make([]*node, 0, len(n.children))
	for _, child := range n.children {
		children = append(children, child)
	}
	slices.SortFunc(children, func(a, b *node) int {
		return cmp.Or(cmp.Compare(b.counts.Threads+b.counts.Tasks, a.counts.Threads+a.counts.Tasks),
			strings.Compare(a.frame.function, b.frame.function), strings.Compare(a.frame.module, b.frame.module))
	})
	return children
}
