package merge

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"stackd.example/fleet/api/stackdv1"
)

func partOf(pods ...Pod) *stackdv1.FleetDump {
	dump := &stackdv1.FleetDump{}
	mergedOf(pods).FillPart(dump, &stackdv1.FleetPart{})
	return dump
}

func TestPartsThatNoGatewayWroteAreRefused(t *testing.T) {
	one := dumpOf("a", waiting(3, "main > serve > read"), waiting(1, "main > serve"))
	one.Findings = []*stackdv1.Finding{{Severity: stackdv1.Finding_HANG, Explanation: "circle"}}
	good := partOf(podOf("a", one), podOf("b", one))
	if _, err := FromDump(good); err != nil {
		t.Fatal(err)
	}
	for words, spoil := range map[string]func(*stackdv1.FleetDump){
		"does not stand before it":   func(dump *stackdv1.FleetDump) { dump.Nodes[0].Parent = 1 },
		"has the parent -2":          func(dump *stackdv1.FleetDump) { dump.Nodes[0].Parent = -2 },
		"fewer threads":              func(dump *stackdv1.FleetDump) { dump.Nodes[1].Counts.Threads = 1 },
		"node -1 has fewer":          func(dump *stackdv1.FleetDump) { dump.Counts.Threads = 7 },
		"are no counts":              func(dump *stackdv1.FleetDump) { dump.Nodes[1].Innermost.Pods = -1 },
		"is no count":                func(dump *stackdv1.FleetDump) { dump.Part.CutThreadCount = 1 << 62 },
		"feature 0 is none":          func(dump *stackdv1.FleetDump) { dump.Part.Features[0].Weight = 11 },
		"feature 1 stands before":    func(dump *stackdv1.FleetDump) { dump.Part.Features[1].Id = dump.Part.Features[0].Id },
		"shape 0 has no pods":        func(dump *stackdv1.FleetDump) { dump.Part.Shapes[0].Pods = nil },
		"shape 0 has features":       func(dump *stackdv1.FleetDump) { dump.Part.Shapes[0].Features[0] = 99 },
		"is deeper than":             func(dump *stackdv1.FleetDump) { dump.Nodes = chain(maxDepth + 1) },
		"findings are too many":      func(dump *stackdv1.FleetDump) { dump.Findings = make([]*stackdv1.FleetFinding, maxFindings+1) },
		"nodes are too many":         func(dump *stackdv1.FleetDump) { dump.Nodes = make([]*stackdv1.StackNode, maxNodes+1) },
		"shape 1 has features":       func(dump *stackdv1.FleetDump) { dump.Part.Shapes = append(dump.Part.Shapes, repeated()) },
		"has fewer threads or tasks": func(dump *stackdv1.FleetDump) { dump.Nodes[2].Innermost.Tasks = 1 },
	} {
		bad := proto.CloneOf(good)
		spoil(bad)
		if _, err := FromDump(bad); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
}

func chain(length int) (nodes []*stackdv1.StackNode) {
	for i := range length {
		nodes = append(nodes, &stackdv1.StackNode{Parent: int32(i - 1)})
	}
	return nodes
}

func repeated() *stackdv1.FleetPart_Shape {
	return &stackdv1.FleetPart_Shape{Features: []int32{1, 1}, PodCount: 1, Pods: []*stackdv1.FleetExample{{Pod: "c"}}}
}

func TestAPartOfTooMuchIsCutAndCounted(t *testing.T) {
	var pods []Pod
	for i := range 4 {
		pods = append(pods, podOf(strings.Repeat("p", 200)+string(rune('a'+i)), hostileDump(i)))
	}
	dump := partOf(pods...)
	if size := proto.Size(dump); size > maxMessageBytes-1<<20 {
		t.Errorf("%d bytes, and the list of unreachable targets is to come", size)
	}
	if dump.OmittedNodeCount == 0 || dump.Part.OmittedFindingCount == 0 || dump.Part.OmittedFeatureCount == 0 {
		t.Errorf("%d %v", dump.OmittedNodeCount, dump.Part.OmittedFindingCount)
	}
	fleet, err := FromDump(dump)
	if err != nil {
		t.Fatal(err)
	}
	whole := filled(fleet)
	if whole.OmittedNodeCount != dump.OmittedNodeCount || !proto.Equal(whole.Counts, dump.Counts) || len(whole.Nodes) != len(dump.Nodes) {
		t.Errorf("%d nodes omitted, then %d; %v, then %v", dump.OmittedNodeCount, whole.OmittedNodeCount, dump.Counts, whole.Counts)
	}
}

// FuzzPart takes bytes for an answer of a slice: what is taken can be written, and taken again.
func FuzzPart(f *testing.F) {
	seed, _ := proto.Marshal(partOf(podOf("a", dumpOf("a", waiting(3, "main > serve"))), podOf("b", dumpOf("b", waiting(1, "main")))))
	f.Add(seed)
	f.Fuzz(func(t *testing.T, bytes []byte) {
		dump := &stackdv1.FleetDump{}
		if proto.Unmarshal(bytes, dump) != nil {
			return
		}
		fleet, err := FromDump(dump)
		if err != nil {
			return
		}
		whole := filled(fleet)
		whole.Lines = Lines(whole)
		again := &stackdv1.FleetDump{}
		fleet.FillPart(again, &stackdv1.FleetPart{})
		if _, err := proto.Marshal(again); err != nil {
			t.Error(err)
		}
		if _, err := FromDump(again); err != nil {
			t.Error(err)
		}
	})
}
