package collect

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/merge"
	"stackd.example/fleet/targets"
)

// made answers of each target the same at any time, by its name.
type made struct{ seed uint64 }

func (m made) Ask(_ context.Context, target targets.Target, _ *stackdv1.CreateFleetDumpRequest) (Answer, error) {
	digest := fnv.New64a()
	digest.Write([]byte(target.Name()))
	random := rand.New(rand.NewPCG(m.seed, digest.Sum64()))
	switch random.IntN(12) {
	case 0:
		return Answer{}, errors.New("it fails")
	case 1:
		return Answer{}, nil
	}
	dump := &stackdv1.Dump{Name: "processes/1-1/dumps/a", State: stackdv1.Dump_COMPLETE, Process: &stackdv1.Process{DisplayName: "checkout"},
		ThreadCounts: &stackdv1.ThreadCounts{Listed: 3}}
	for range random.IntN(6) {
		stack := &stackdv1.Stack{}
		for range 1 + random.IntN(5) {
			stack.Frames = append(stack.Frames, &stackdv1.Frame{Function: string(rune('a' + random.IntN(3))), Module: "m"})
		}
		dump.Groups = append(dump.Groups, &stackdv1.StackGroup{ThreadCount: int32(random.IntN(4)), Stack: stack, States: []string{"sleeps"}})
	}
	if random.IntN(3) == 0 {
		words := []string{"thread", "a", "b", fmt.Sprint(random.IntN(9))}
		random.Shuffle(len(words), func(a, b int) { words[a], words[b] = words[b], words[a] })
		dump.Findings = []*stackdv1.Finding{{Kind: stackdv1.Finding_DEADLOCK, Severity: stackdv1.Finding_HANG, Explanation: strings.Join(words, " ")}}
	}
	answer := Answer{Pods: []merge.Pod{{Name: target.Pod(), Target: target.Name(), Dumps: []*stackdv1.Dump{dump}}}}
	if random.IntN(4) == 0 {
		answer.Notes = []string{target.Name() + " has a note"}
	}
	return answer, nil
}

func answerOf(t *testing.T, asker Asker, all []targets.Target, slice *stackdv1.FleetSlice) *stackdv1.FleetDump {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if slice != nil {
		all = targets.Slice(all, int(slice.GetIndex()), int(slice.GetCount()))
	}
	collector := Collector{Asker: asker, Parallel: 4}
	dump := collector.Collect(ctx, all, &stackdv1.CreateFleetDumpRequest{Selector: "workload=checkout", Slice: slice}, func(Progress) {})
	if dump.GetPart() == nil {
		dump.Lines = merge.Lines(dump)
	}
	return dump
}

// bytesOf leaves out when it was made.
func bytesOf(t *testing.T, dump *stackdv1.FleetDump) string {
	t.Helper()
	dump.CreateTime, dump.Duration = nil, nil
	bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(dump)
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes)
}

func joined(t *testing.T, parts []*stackdv1.FleetDump) *stackdv1.FleetDump {
	t.Helper()
	var all Join
	for _, part := range parts {
		bytes, err := proto.Marshal(part)
		sent := &stackdv1.FleetDump{}
		if err := errors.Join(err, proto.Unmarshal(bytes, sent)); err != nil {
			t.Fatal(err)
		}
		if err := all.Add(sent); err != nil {
			t.Fatal(err)
		}
	}
	dump, err := all.Dump()
	if err != nil {
		t.Fatal(err)
	}
	return dump
}

func TestAnySlicesInAnyOrderAndGroupingGiveTheBytesOfOneGateway(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 4))
		var all []targets.Target
		for i := range random.IntN(100) {
			all = append(all, targets.Target{Address: fmt.Sprintf("10.0.0.%d:7443", i), Labels: map[string]string{"pod": fmt.Sprintf("checkout-%d", i)}})
		}
		asker := made{seed}
		whole := answerOf(t, asker, all, nil)
		count := 2 + random.IntN(7)
		var parts []*stackdv1.FleetDump
		for i := range count {
			parts = append(parts, answerOf(t, asker, all, &stackdv1.FleetSlice{Index: int32(i), Count: int32(count)}))
		}
		random.Shuffle(count, func(a, b int) { parts[a], parts[b] = parts[b], parts[a] })
		for len(parts) > 1 {
			some := 2 + random.IntN(len(parts)-1)
			begin := random.IntN(len(parts) - some + 1)
			one := joined(t, parts[begin:begin+some])
			parts = append(append(parts[:begin:begin], one), parts[begin+some:]...)
		}
		got := parts[0]
		if want := bytesOf(t, whole); want != bytesOf(t, got) {
			t.Fatalf("seed %d, %d slices:\n%s\n\n%s", seed, count, protojson.Format(whole), protojson.Format(got))
		}
	}
}

func TestPartsThatDoNotFitAreRefused(t *testing.T) {
	all := []targets.Target{{Address: "10.0.0.1:7443"}, {Address: "10.0.0.2:7443"}}
	slice := func(index, count int32) *stackdv1.FleetDump {
		return answerOf(t, made{1}, all, &stackdv1.FleetSlice{Index: index, Count: count})
	}
	other := slice(1, 2)
	other.Request.Selector = "workload=orders"
	backwards := slice(1, 2)
	backwards.Part.Slices = []int32{2}
	for words, parts := range map[string][]*stackdv1.FleetDump{
		"is no part of an answer": {answerOf(t, made{1}, all, nil)},
		"slice 0 is there twice":  {slice(0, 2), slice(0, 2)},
		"another request":         {slice(0, 2), other},
		"another request than":    {slice(0, 2), slice(1, 3)},
		"is none of 2":            {backwards},
		"no part":                 {},
	} {
		var join Join
		var err error
		for _, part := range parts {
			err = errors.Join(err, join.Add(part))
		}
		if err == nil {
			_, err = join.Dump()
		}
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
	some := joined(t, []*stackdv1.FleetDump{slice(0, 3), slice(2, 3)})
	if notes := fmt.Sprint(some.Notes); some.State != stackdv1.FleetDump_PARTIAL || !strings.Contains(notes, "2 of 3 slices") {
		t.Errorf("%v %s", some.State, notes)
	}
}
