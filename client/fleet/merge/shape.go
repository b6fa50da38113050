package merge

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"

	"stackd.example/fleet/api/stackdv1"
)

const (
	maxFeatures    = 100_000
	maxPodFeatures = 2_000
	maxShapes      = 10_000
	// How much a hang counts when pods are compared: nothing counts more.
	harmWeight = 10
	// Innermost functions by which a stack is named.
	namedFunctions = 4
)

// featureID is a digest, equal in each gateway; of a shape the digest of its features.
type featureID [16]byte

type featureKind int

const (
	processFeature featureKind = iota
	findingFeature
	stackFeature
)

// feature is something that a pod has or has not: a process, a finding, a stack in which a thread waits.
type feature struct {
	kind   featureKind
	what   string
	weight int32
	pods   int64
}

// shape is the features of a pod, and which pods have just these.
type shape struct {
	features []featureID
	count    int64
	pods     []*Example
}

// shapeOfPod collects features while the dumps of a pod are read.
type shapeOfPod struct {
	features map[featureID]*feature
}

func newShapeOfPod() *shapeOfPod { return &shapeOfPod{features: map[featureID]*feature{}} }

func idOf(kind featureKind, parts ...string) featureID {
	digest := sha256.New()
	digest.Write([]byte{byte(kind)})
	for _, part := range parts {
		digest.Write([]byte(part))
		digest.Write([]byte{0})
	}
	return featureID(digest.Sum(nil)[:16])
}

func (s *shapeOfPod) add(kind featureKind, weight int32, what string, parts ...string) {
	s.features[idOf(kind, parts...)] = &feature{kind: kind, what: what, weight: weight, pods: 1}
}

func (s *shapeOfPod) addProcess(name string) {
	name = printable(name, maxNameBytes)
	s.add(processFeature, 3, name, name)
}

// What is harmless comes and goes.
func (s *shapeOfPod) addFinding(signature string, merged *finding) {
	if weight := []int32{0, 3, harmWeight}[badness(merged.severity)]; weight > 0 {
		s.add(findingFeature, weight, merged.explanation, signature)
	}
}

// addStack takes stacks in which threads wait: where one runs is chance.
func (s *shapeOfPod) addStack(group *stackdv1.StackGroup, keys []frameKey) {
	if len(keys) == 0 || slices.ContainsFunc(group.GetStates(), runs) {
		return
	}
	parts := make([]string, 0, 2*len(keys))
	for _, key := range keys {
		parts = append(parts, key.function, key.module)
	}
	s.add(stackFeature, 1, tellingNames(keys), parts...)
}

func runs(state string) bool { return strings.HasPrefix(state, "run") }

// addShape counts what was collected as the one shape of this pod.
func (f *Fleet) addShape(collected *shapeOfPod, pod *Example) {
	f.features = collected.features
	one := &shape{count: 1, pods: []*Example{pod}}
	for id := range f.features {
		one.features = append(one.features, id)
	}
	slices.SortFunc(one.features, compareIDs)
	if len(one.features) > maxPodFeatures {
		for _, id := range one.features[maxPodFeatures:] {
			delete(f.features, id)
			f.omittedFeatures++
		}
		one.features = one.features[:maxPodFeatures:maxPodFeatures]
	}
	f.shapes = map[featureID]*shape{one.id(): one}
}

func (s *shape) id() featureID {
	digest := sha256.New()
	for _, id := range s.features {
		digest.Write(id[:])
	}
	return featureID(digest.Sum(nil)[:16])
}

func compareIDs(a, b featureID) int { return bytes.Compare(a[:], b[:]) }

func (f *Fleet) mergeShapes(other *Fleet) {
	if f.features == nil {
		f.features, f.shapes = map[featureID]*feature{}, map[featureID]*shape{}
	}
	for id, theirs := range other.features {
		ours := f.features[id]
		switch {
		case ours != nil:
			ours.pods += theirs.pods
			// Words of a finding may stand in another order.
			ours.what = min(ours.what, theirs.what)
		case len(f.features) < maxFeatures:
			f.features[id] = theirs
		default:
			f.omittedFeatures++
		}
	}
	for id, theirs := range other.shapes {
		ours := f.shapes[id]
		switch {
		case ours != nil:
			ours.count += theirs.count
			ours.pods = firstOf(maxExamples, ours.pods, theirs.pods)
		case len(f.shapes) < maxShapes:
			f.shapes[id] = theirs
		default:
			f.omittedShapes += theirs.count
		}
	}
}
