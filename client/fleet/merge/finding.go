package merge

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"stackd.example/fleet/api/stackdv1"
)

const (
	maxFindings    = 10_000
	maxPodFindings = 200
)

// finding is what daemons conclude of one cause, in any number of pods.
type finding struct {
	kind        stackdv1.Finding_Kind
	severity    stackdv1.Finding_Severity
	explanation string
	process     string
	counts      Counts
	examples    []*Example
	countedIn   int
}

// signature is equal for findings of one cause in equal processes. A circle may be told from any of its threads on: the words
// count, and not their order.
func (f *finding) signature() string {
	words := []string{f.explanation}
	if f.kind == stackdv1.Finding_DEADLOCK {
		words = strings.FieldsFunc(f.explanation, func(r rune) bool { return r == ' ' || r == ',' || r == ':' })
		slices.Sort(words)
	}
	return strings.Join(append([]string{strconv.Itoa(int(f.kind)), strconv.Itoa(int(f.severity)), f.process}, words...), "\x00")
}

func (f *Fleet) addFinding(found *stackdv1.Finding, process string, number int, example *Example, shape *shapeOfPod) {
	if f.findings == nil {
		f.findings = map[string]*finding{}
	}
	said := printable(found.GetExplanation(), maxExplanationBytes)
	one := &finding{kind: found.GetKind(), severity: found.GetSeverity(), explanation: withoutNumbers(said),
		process: printable(process, maxNameBytes)}
	signature := one.signature()
	merged := f.findings[signature]
	if merged == nil {
		if len(f.findings) >= maxPodFindings {
			f.uncountedFindings++
			return
		}
		merged = one
		f.findings[signature] = merged
	}
	merged.explanation = min(merged.explanation, one.explanation)
	merged.counts.see(Counts{Threads: int64(len(found.GetTids()))}, number, &merged.countedIn)
	merged.examples = firstOf(maxExamples, merged.examples,
		[]*Example{{Pod: example.Pod, Target: example.Target, Dump: example.Dump, Explanation: said}})
	shape.addFinding(signature, merged)
}

func (f *Fleet) mergeFindings(other *Fleet) {
	if f.findings == nil {
		f.findings = map[string]*finding{}
	}
	for signature, theirs := range other.findings {
		ours := f.findings[signature]
		if ours == nil {
			if len(f.findings) >= maxFindings {
				f.uncountedFindings++
				continue
			}
			f.findings[signature] = theirs
			continue
		}
		ours.counts.add(theirs.counts)
		ours.explanation = min(ours.explanation, theirs.explanation)
		ours.examples = firstOf(maxExamples, ours.examples, theirs.examples)
	}
}

// worstFirst returns the findings in the order of an answer.
func (f *Fleet) worstFirst() []*finding {
	all := make([]*finding, 0, len(f.findings))
	for _, signature := range slices.Sorted(maps.Keys(f.findings)) {
		all = append(all, f.findings[signature])
	}
	slices.SortStableFunc(all, func(a, b *finding) int {
		return cmp.Or(cmp.Compare(badness(b.severity), badness(a.severity)), cmp.Compare(b.counts.Pods, a.counts.Pods),
			cmp.Compare(b.counts.Threads, a.counts.Threads), cmp.Compare(a.kind, b.kind), strings.Compare(a.explanation, b.explanation),
			compareFirst(a.examples, b.examples))
	})
	return all
}

func compareFirst(a, b []*Example) int {
	if len(a) == 0 || len(b) == 0 {
		return cmp.Compare(len(a), len(b))
	}
	return a[0].compare(b[0])
}

func badness(severity stackdv1.Finding_Severity) int {
	switch severity {
	case stackdv1.Finding_HANG:
		return 2
	case stackdv1.Finding_SUSPICIOUS:
		return 1
	default:
		return 0
	}
}
