package merge

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"stackd.example/fleet/api/stackdv1"
)

// The limit of stock clients.
const maxMessageBytes = 4 << 20

// hostileDump has more of everything than an answer may take.
func hostileDump(seed int) *stackdv1.Dump {
	long := strings.Repeat("x", 10_000)
	dump := &stackdv1.Dump{Name: fmt.Sprintf("processes/1-%d/dumps/a", seed), Process: &stackdv1.Process{DisplayName: long},
		OmittedGroupCount: -5, ThreadCounts: &stackdv1.ThreadCounts{Listed: 1<<31 - 1, Captured: -7}}
	for i := range 180 {
		group := &stackdv1.StackGroup{ThreadCount: 1<<31 - 1, TaskCount: 1<<63 - 1, Stack: &stackdv1.Stack{}}
		for j := range 40 {
			group.Stack.Frames = append(group.Stack.Frames, &stackdv1.Frame{Function: fmt.Sprintf("%d %d %d \x1b[2J%s", seed, i, j, long[:500])})
		}
		dump.Groups = append(dump.Groups, group)
		dump.Findings = append(dump.Findings, &stackdv1.Finding{Severity: stackdv1.Finding_HANG, Explanation: fmt.Sprintf("%c%c%s", 'a'+seed%26, 'A'+i%58, long)})
	}
	dump.Groups = append(dump.Groups, &stackdv1.StackGroup{ThreadCount: -9}, &stackdv1.StackGroup{Stack: stack(strings.Repeat("f > ", 10_000))})
	return dump
}

func TestAHostileDaemonIsCutAndCounted(t *testing.T) {
	var pods []Pod
	for i := range 32 {
		pods = append(pods, podOf(strings.Repeat("p", 200)+fmt.Sprint(i), hostileDump(i)))
	}
	sum := mergedOf(pods)
	if sum.nodes > maxNodes || sum.cutThreads == 0 || len(sum.findings) > maxFindings || len(sum.features) > maxFeatures {
		t.Errorf("%d nodes, %d threads cut, %d findings, %d features", sum.nodes, sum.cutThreads, len(sum.findings), len(sum.features))
	}
	dump := filled(sum)
	dump.Lines = Lines(dump)
	if size := proto.Size(dump); size > maxMessageBytes-1<<20 {
		t.Errorf("%d bytes, and the list of unreachable targets is to come", size)
	}
	if dump.OmittedNodeCount == 0 || len(dump.Notes) == 0 || sum.Complete() {
		t.Errorf("%d %v", dump.OmittedNodeCount, dump.Notes)
	}
	for _, line := range dump.Lines {
		if !isPlain(strings.ReplaceAll(line, "…", "")) {
			t.Fatalf("%q", line)
		}
	}
	if dump.ThreadCounts.Listed < 0 || dump.ThreadCounts.Captured != 0 {
		t.Errorf("%v", dump.ThreadCounts)
	}
}

func TestNothingAtAllIsAnAnswerToo(t *testing.T) {
	dump := filled(mergedOf([]Pod{podOf("a"), podOf("b", &stackdv1.Dump{})}))
	dump.Lines = Lines(dump)
	if dump.Counts.Pods != 1 || dump.Counts.Processes != 1 {
		t.Errorf("%v", dump.Counts)
	}
}

// FuzzMerge takes bytes for dumps of two pods: whatever they say, both orders give one answer, and so do parts.
func FuzzMerge(f *testing.F) {
	add := func(a, b *stackdv1.Dump) {
		first, _ := proto.Marshal(a)
		second, _ := proto.Marshal(b)
		f.Add(first, second)
	}
	one := dumpOf("1", waiting(3, "main > serve > read"))
	one.Findings = []*stackdv1.Finding{{Kind: stackdv1.Finding_DEADLOCK, Severity: stackdv1.Finding_HANG, Explanation: "thread a (tid 7)"}}
	add(one, dumpOf("2", waiting(1, "main > serve"), waiting(-1, "main")))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var a, b stackdv1.Dump
		if proto.Unmarshal(first, &a) != nil || proto.Unmarshal(second, &b) != nil {
			return
		}
		pods := []Pod{podOf("a", &a), podOf("b", &b), podOf("c", &a, &b)}
		forth, back := &Fleet{}, &Fleet{}
		for i := range pods {
			forth.Merge(FromPod(pods[i]))
			back.Merge(FromPod(pods[len(pods)-1-i]))
		}
		want, got := filled(forth), filled(back)
		want.Lines, got.Lines = Lines(want), Lines(got)
		if !proto.Equal(want, got) {
			t.Errorf("%v\n\n%v", want, got)
		}
		parts := filled(throughParts(t, pods))
		parts.Lines = Lines(parts)
		if !proto.Equal(want, parts) {
			t.Errorf("%v\n\n%v", want, parts)
		}
		if _, err := proto.Marshal(want); err != nil {
			t.Error(err)
		}
	})
}
