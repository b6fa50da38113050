package merge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"stackd.example/fleet/api/stackdv1"
)

// stack is written from the thread's first function on: "main > serve > read".
func stack(text string) *stackdv1.Stack {
	made := &stackdv1.Stack{}
	for _, function := range strings.Split(text, " > ") {
		made.Frames = append(made.Frames, &stackdv1.Frame{Function: function, Module: "checkout"})
	}
	slices.Reverse(made.Frames)
	return made
}

func waiting(threads int32, text string) *stackdv1.StackGroup {
	return &stackdv1.StackGroup{ThreadCount: threads, Stack: stack(text), States: []string{"in a system call (futex)"}}
}

func dumpOf(pod string, groups ...*stackdv1.StackGroup) *stackdv1.Dump {
	return &stackdv1.Dump{Name: "processes/1-" + pod + "/dumps/a", State: stackdv1.Dump_COMPLETE, Groups: groups,
		Process: &stackdv1.Process{DisplayName: "checkout"}}
}

func podOf(name string, dumps ...*stackdv1.Dump) Pod {
	return Pod{Name: name, Target: "targets/" + name, Dumps: dumps}
}

func mergedOf(pods []Pod) *Fleet {
	sum := &Fleet{}
	for _, pod := range pods {
		sum.Merge(FromPod(pod))
	}
	return sum
}

func filled(f *Fleet) *stackdv1.FleetDump {
	dump := &stackdv1.FleetDump{}
	f.Fill(dump)
	return dump
}

func pathOf(dump *stackdv1.FleetDump, node int) string {
	if node < 0 {
		return ""
	}
	return pathOf(dump, int(dump.Nodes[node].Parent)) + " > " + dump.Nodes[node].Function
}

func TestThreadsProcessesAndPodsAreCountedAtEachNode(t *testing.T) {
	dump := filled(mergedOf([]Pod{
		podOf("a", dumpOf("a", waiting(3, "main > serve > read"), waiting(1, "main > serve > lock")),
			dumpOf("a2", waiting(2, "main > serve > read"))),
		podOf("b", dumpOf("b", waiting(5, "main > serve > read"), waiting(1, "main"))),
	}))
	var got []string
	for i, node := range dump.Nodes {
		c, in := node.Counts, node.Innermost
		got = append(got, fmt.Sprintf("%s: %d/%d/%d innermost %d/%d/%d", pathOf(dump, i), c.Threads, c.Processes, c.Pods, in.Threads, in.Processes, in.Pods))
	}
	want := []string{
		" > main: 12/3/2 innermost 1/1/1",
		" > main > serve: 11/3/2 innermost 0/0/0",
		" > main > serve > read: 10/3/2 innermost 10/3/2",
		" > main > serve > lock: 1/1/1 innermost 1/1/1",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %s", strings.Join(got, "\n"))
	}
	if dump.Counts.Threads != 12 || dump.Counts.Processes != 3 || dump.Counts.Pods != 2 {
		t.Errorf("%v", dump.Counts)
	}
	if examples := dump.Nodes[0].Examples; len(examples) != 3 || examples[0].Pod != "a" || examples[2].Pod != "b" {
		t.Errorf("%v", examples)
	}
}

func TestWhatHasNoNameIsNamedByItsPlace(t *testing.T) {
	for want, frame := range map[string]*stackdv1.Frame{
		"f":             {Function: "f", Module: "m"},
		"libx.so+0x1f0": {Module: "libx.so", ModuleOffset: "0x1f0"},
		"[anon]":        {Module: "[anon]", ModuleOffset: "0x1f0"},
		"?":             {},
		"a?b":           {Function: "a\x1bb"},
	} {
		if got := keyOf(frame).function; got != want {
			t.Errorf("%q in place of %q", got, want)
		}
	}
}

func TestStacksAreNamedByWhatTellsThemApart(t *testing.T) {
	for want, modules := range map[string][]string{
		"f2 < f3": {"libc.so.6", "libc.so.6", "checkout", "libc.so.6"},
		"f0 < f1": {"libc.so.6", "libc.so.6"},
		"":        {},
	} {
		var keys []frameKey
		for i, module := range modules {
			keys = append(keys, frameKey{fmt.Sprintf("f%d", i), module})
		}
		if got := tellingNames(keys); got != want {
			t.Errorf("%q in place of %q", got, want)
		}
	}
}

func TestFindingsThatDifferInNumbersAreOne(t *testing.T) {
	var pods []Pod
	for i := range 40 {
		dump := dumpOf(fmt.Sprint(i), waiting(1, "main"))
		if i < 37 {
			first, second := "savings", "checking"
			if i%2 == 1 {
				first, second = second, first
			}
			dump.Findings = []*stackdv1.Finding{{Kind: stackdv1.Finding_DEADLOCK, Severity: stackdv1.Finding_HANG, Tids: []int32{1, 2},
				Explanation: fmt.Sprintf("2 threads wait for each other in a circle: thread %s (tid %d), thread %s (tid %d)", first, i, second, 2*i)}}
		}
		pods = append(pods, podOf(fmt.Sprintf("pod-%02d", i), dump))
	}
	dump := filled(mergedOf(pods))
	if len(dump.Findings) != 1 {
		t.Fatalf("%v", dump.Findings)
	}
	found := dump.Findings[0]
	if found.Counts.Pods != 37 || found.Counts.Threads != 74 || len(found.Examples) != maxExamples ||
		found.Explanation != "# threads wait for each other in a circle: thread checking, thread savings" ||
		!strings.Contains(found.Examples[0].Explanation, "tid 0") {
		t.Errorf("%v", found)
	}
	if len(dump.OddPods) != 1 || dump.OddPods[0].PodCount != 3 || dump.OddPods[0].Differences[0].Kind != stackdv1.OddPods_Difference_LACKS_FINDING {
		t.Errorf("%v", dump.OddPods)
	}
}

func TestNumbersGoAndNamesStay(t *testing.T) {
	for text, want := range map[string]string{
		"mutex 0x7f12ab (g_accounts in .bss of bank)": "mutex # (g_accounts in .bss of bank)",
		"3,412 threads in pool2_worker, 1.5 s":        "# threads in pool2_worker, # s",
		"thread worker-3 (tid 102)":                   "thread worker-#",
		"ends in 7.":                                  "ends in #.",
	} {
		if got := withoutNumbers(text); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestPodsThatDifferAreNamedWithHow(t *testing.T) {
	var pods []Pod
	for i := range 20 {
		groups := []*stackdv1.StackGroup{waiting(4, "main > serve > epoll_wait"), waiting(1, "main > timer > sleep")}
		switch i {
		case 4:
			groups = append(groups, waiting(1, "main > migrate > flock"))
		case 9:
			groups = groups[1:]
		case 12:
			// Where a thread runs is chance.
			groups = append(groups, &stackdv1.StackGroup{ThreadCount: 1, Stack: stack("main > compute"), States: []string{"running"}})
		case 15:
			groups = append(groups, &stackdv1.StackGroup{ThreadCount: 1, Stack: stack("agent"), IsAgent: true})
		}
		pods = append(pods, podOf(fmt.Sprintf("pod-%02d", i), dumpOf(fmt.Sprint(i), groups...)))
	}
	dump := filled(mergedOf(pods))
	got := map[string]string{}
	for _, odd := range dump.OddPods {
		got[odd.Pods[0].Pod] = fmt.Sprintf("%d %v %s", odd.PodCount, odd.Differences[0].Kind, odd.Differences[0].What)
	}
	want := map[string]string{
		"pod-04": "1 HAS_STACK flock < migrate < main",
		"pod-09": "1 LACKS_STACK epoll_wait < serve < main",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v", got)
	}
}

func TestWhereEachPodHasStacksOfItsOwnOnlyMoreIsOdd(t *testing.T) {
	var pods []Pod
	for i := range 30 {
		dump := dumpOf(fmt.Sprint(i), waiting(4, "main > serve > epoll_wait"), waiting(1, fmt.Sprintf("main > handle%c > read", 'A'+i)))
		if i == 7 {
			dump.Findings = []*stackdv1.Finding{{Kind: stackdv1.Finding_DEADLOCK, Severity: stackdv1.Finding_HANG, Explanation: "circle"}}
		}
		pods = append(pods, podOf(fmt.Sprintf("pod-%02d", i), dump))
	}
	dump := filled(mergedOf(pods))
	if len(dump.OddPods) != 1 || dump.OddPods[0].Pods[0].Pod != "pod-07" {
		t.Errorf("%v", dump.OddPods)
	}
}

// randomPods have few functions, so that much is shared, and all that a daemon might send.
func randomPods(random *rand.Rand, count int) []Pod {
	var pods []Pod
	for i := range count {
		pod := podOf(fmt.Sprintf("pod-%03d", i))
		for d := range random.IntN(3) {
			dump := dumpOf(fmt.Sprintf("%d.%d", i, d))
			dump.Name = fmt.Sprintf("processes/%d-1/dumps/x", d+1)
			dump.State = stackdv1.Dump_State(random.IntN(3))
			dump.OmittedGroupCount = int32(random.IntN(3) - 1)
			dump.ThreadCounts = &stackdv1.ThreadCounts{Listed: int32(random.IntN(10) - 1)}
			for range random.IntN(6) {
				group := waiting(int32(random.IntN(5)-1), "main")
				group.TaskCount = int64(random.IntN(3) - 1)
				group.IsAgent = random.IntN(8) == 0
				if random.IntN(3) == 0 {
					group.States = append(group.States, "running")
				}
				for range random.IntN(5) {
					group.Stack.Frames = append([]*stackdv1.Frame{{Function: string(rune('a' + random.IntN(3))),
						Language: stackdv1.Language(random.IntN(3))}}, group.Stack.Frames...)
				}
				dump.Groups = append(dump.Groups, group)
			}
			for range random.IntN(3) {
				words := []string{"thread", fmt.Sprint(random.IntN(9)), "waits", "circle"}
				random.Shuffle(len(words), func(a, b int) { words[a], words[b] = words[b], words[a] })
				dump.Findings = append(dump.Findings, &stackdv1.Finding{Kind: stackdv1.Finding_Kind(random.IntN(4)),
					Severity: stackdv1.Finding_Severity(random.IntN(4)), Explanation: strings.Join(words, " "), Tids: []int32{1}})
			}
			pod.Dumps = append(pod.Dumps, dump)
		}
		pods = append(pods, pod)
	}
	return pods
}

// inSomeTree merges in a random order, and in a random tree.
func inSomeTree(random *rand.Rand, pods []Pod) *Fleet {
	var parts []*Fleet
	for _, pod := range pods {
		parts = append(parts, FromPod(pod))
	}
	random.Shuffle(len(parts), func(a, b int) { parts[a], parts[b] = parts[b], parts[a] })
	for len(parts) > 1 {
		i := random.IntN(len(parts) - 1)
		if random.IntN(4) == 0 {
			empty := &Fleet{}
			empty.Merge(parts[i])
			parts[i] = empty
		}
		parts[i].Merge(parts[i+1])
		parts = append(parts[:i+1], parts[i+2:]...)
	}
	return parts[0]
}

func TestAnyOrderAndAnyTreeGivesTheSameAnswer(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		pods := randomPods(random, 1+random.IntN(30))
		want := filled(mergedOf(pods))
		for range 3 {
			if got := filled(inSomeTree(random, pods)); !proto.Equal(want, got) {
				t.Fatalf("seed %d:\n%s\n\n%s", seed, protojson.Format(want), protojson.Format(got))
			}
		}
	}
}

// throughParts merges pods by what is sent of each: as a message.
func throughParts(t *testing.T, pods []Pod) *Fleet {
	t.Helper()
	sum := &Fleet{}
	for _, pod := range pods {
		sent := &stackdv1.FleetDump{}
		FromPod(pod).FillPart(sent, &stackdv1.FleetPart{})
		bytes, err := proto.Marshal(sent)
		got := &stackdv1.FleetDump{}
		if err != nil || proto.Unmarshal(bytes, got) != nil {
			t.Fatalf("%v: %v", err, sent)
		}
		fleet, err := FromDump(got)
		if err != nil {
			t.Fatalf("%v: %v", err, sent)
		}
		sum.Merge(fleet)
	}
	return sum
}

func TestWhatIsSentOfPartsGivesTheSameAnswer(t *testing.T) {
	for seed := range uint64(200) {
		pods := randomPods(rand.New(rand.NewPCG(seed, 3)), 1+int(seed%30))
		want, got := filled(mergedOf(pods)), filled(throughParts(t, pods))
		if !proto.Equal(want, got) {
			t.Fatalf("seed %d:\n%s\n\n%s", seed, protojson.Format(want), protojson.Format(got))
		}
	}
}

func TestCountsAddUp(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		dump := filled(mergedOf(randomPods(random, 20)))
		below := make([]int64, len(dump.Nodes))
		var roots int64
		for i := len(dump.Nodes) - 1; i >= 0; i-- {
			node := dump.Nodes[i]
			if node.Counts.Threads != below[i]+node.Innermost.Threads {
				t.Fatalf("seed %d: %s has %d threads, below it are %d", seed, pathOf(dump, i), node.Counts.Threads, below[i])
			}
			if node.Parent >= int32(i) || node.Counts.Pods > dump.Counts.Pods || node.Counts.Processes > dump.Counts.Processes {
				t.Fatalf("seed %d: %v", seed, node)
			}
			if node.Parent < 0 {
				roots += node.Counts.Threads
			} else {
				below[node.Parent] += node.Counts.Threads
			}
		}
		if roots != dump.Counts.Threads {
			t.Fatalf("seed %d: %d of %d threads", seed, roots, dump.Counts.Threads)
		}
	}
}
