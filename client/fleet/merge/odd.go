package merge

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"stackd.example/fleet/api/stackdv1"
)

const (
	// Fewer pods have no rest to differ from.
	minPods = 3
	// A feature is rare below the first share of all pods, and common above the second.
	rareShare   = 1.0 / 3
	commonShare = 2.0 / 3
	maxOdd      = 20
	// Differences of one shape that an answer names.
	maxDifferences = 10
)

// odd returns the shapes that differ from the rest, and how many beyond the limit do.
//
// In a fleet of servers each pod has a few stacks of its own at any moment. A shape is odd if it differs twice as much as the
// pod in the middle does.
func (f *Fleet) odd() (named []*stackdv1.OddPods, omitted int) {
	if f.root.counts.Pods < minPods {
		return nil, 0
	}
	common := f.commonFeatures()
	all := make([]*stackdv1.OddPods, 0, len(f.shapes))
	// Two pods may have one name.
	for _, id := range slices.SortedFunc(maps.Keys(f.shapes), compareIDs) {
		all = append(all, f.differences(f.shapes[id], common))
	}
	slices.SortStableFunc(all, func(a, b *stackdv1.OddPods) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(b.PodCount, a.PodCount),
			strings.Compare(a.Pods[0].Pod, b.Pods[0].Pod), strings.Compare(a.Pods[0].Target, b.Pods[0].Target))
	})
	threshold := 2 * middleScore(all)
	for _, shape := range all {
		switch {
		case shape.Score <= threshold:
		case len(named) < maxOdd:
			named = append(named, shape)
		default:
			omitted++
		}
	}
	return named, omitted
}

// middleScore is the score of the pod in the middle; `all` is sorted by score, the largest first.
func middleScore(all []*stackdv1.OddPods) float64 {
	var pods, seen int64
	for _, shape := range all {
		pods += shape.PodCount
	}
	for _, shape := range all {
		seen += shape.PodCount
		if 2*seen >= pods {
			return shape.Score
		}
	}
	return 0
}

func (f *Fleet) share(one *feature) float64 { return float64(one.pods) / float64(f.root.counts.Pods) }

func (f *Fleet) commonFeatures() []featureID {
	var common []featureID
	for id, one := range f.features {
		if f.share(one) > commonShare {
			common = append(common, id)
		}
	}
	slices.SortFunc(common, compareIDs)
	return common
}

type weighed struct {
	difference *stackdv1.OddPods_Difference
	score      float64
}

func (f *Fleet) differences(one *shape, common []featureID) *stackdv1.OddPods {
	var found []weighed
	note := func(kind stackdv1.OddPods_Difference_Kind, of *feature, score float64) {
		found = append(found, weighed{&stackdv1.OddPods_Difference{Kind: kind, What: of.what, PodsWithIt: of.pods}, score})
	}
	for _, id := range one.features {
		if of := f.features[id]; of != nil && f.share(of) < rareShare {
			note(hasKinds[of.kind], of, float64(of.weight)*(1-f.share(of)))
		}
	}
	for _, id := range common {
		if _, has := slices.BinarySearchFunc(one.features, id, compareIDs); !has {
			of := f.features[id]
			note(lacksKinds[of.kind], of, float64(of.weight)*f.share(of))
		}
	}
	slices.SortFunc(found, func(a, b weighed) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.difference.Kind, b.difference.Kind),
			strings.Compare(a.difference.What, b.difference.What))
	})
	odd := &stackdv1.OddPods{PodCount: one.count, Pods: examplesOf(one.pods)}
	for i, each := range found {
		odd.Score += each.score
		if i < maxDifferences {
			odd.Differences = append(odd.Differences, each.difference)
		} else {
			odd.OmittedDifferenceCount++
		}
	}
	return odd
}

var (
	hasKinds = map[featureKind]stackdv1.OddPods_Difference_Kind{
		processFeature: stackdv1.OddPods_Difference_HAS_PROCESS,
		findingFeature: stackdv1.OddPods_Difference_HAS_FINDING,
		stackFeature:   stackdv1.OddPods_Difference_HAS_STACK,
	}
	lacksKinds = map[featureKind]stackdv1.OddPods_Difference_Kind{
		processFeature: stackdv1.OddPods_Difference_LACKS_PROCESS,
		findingFeature: stackdv1.OddPods_Difference_LACKS_FINDING,
		stackFeature:   stackdv1.OddPods_Difference_LACKS_STACK,
	}
)
