package history

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/targets"
)

const (
	// Limit of one answer. More are not read.
	maxRecords = 50_000
	maxNames   = 20
	maxDumps   = 10
)

// Listing is what crashes or hangs there were.
type Listing struct {
	// Seen last comes first.
	Groups []*stackdv1.HistoryGroup
	Count  int64
	Notes  []string
}

// List reads the records that are wanted of the pods of a selector, and merges them by fingerprint.
func List(ctx context.Context, store Store, question Question, selector targets.Selector) (*Listing, error) {
	merged := newMerging()
	read := 0
	notes, err := store.Records(ctx, question, func(record Record) bool {
		if read++; read > maxRecords {
			return false
		}
		if selector.Matches(record.Labels) {
			merged.add(record)
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	listing := merged.listing()
	listing.Notes = notes
	if read > maxRecords {
		listing.Notes = append(listing.Notes, fmt.Sprintf(
			"only the newest %d records are counted: ask for a smaller window or one fingerprint", maxRecords))
	}
	return listing, nil
}

type group struct {
	first, last                time.Time
	count                      int64
	explanation, cause         string
	services, versions, places map[string]int64
	dumps                      []*stackdv1.FleetExample
}

type merging struct {
	groups map[string]*group
	// Collectors may send a record again.
	seen map[string]bool
}

func newMerging() merging { return merging{groups: map[string]*group{}, seen: map[string]bool{}} }

// add takes records newest first.
func (m merging) add(record Record) {
	key := record.key()
	if m.seen[key] {
		return
	}
	m.seen[key] = true
	one := m.groups[record.Fingerprint]
	if one == nil {
		one = &group{services: map[string]int64{}, versions: map[string]int64{}, places: map[string]int64{}}
		m.groups[record.Fingerprint] = one
	}
	if record.Digest != "" {
		if len(one.dumps) < maxDumps {
			one.dumps = append(one.dumps, record.example())
		}
		return
	}
	if one.count == 0 {
		one.last, one.explanation, one.cause = record.Time, record.Explanation, record.Cause
	}
	one.first = record.Time
	one.count++
	for name, counts := range map[string]map[string]int64{
		record.Labels["service"]: one.services, record.Labels["version"]: one.versions, record.place(): one.places} {
		if name != "" {
			counts[name]++
		}
	}
}

func (m merging) listing() *Listing {
	listing := &Listing{}
	for fingerprint, one := range m.groups {
		// A dump is nothing to count. Its record may lie behind the end of the window.
		if one.count == 0 {
			continue
		}
		listing.Count += one.count
		listing.Groups = append(listing.Groups, &stackdv1.HistoryGroup{
			Fingerprint: fingerprint, Count: one.count, FirstSeenTime: timestamppb.New(one.first), LastSeenTime: timestamppb.New(one.last),
			Explanation: one.explanation, Cause: one.cause, Services: mostFrequent(one.services), Versions: mostFrequent(one.versions),
			Pods: mostFrequent(one.places), PodCount: int64(len(one.places)), Dumps: one.dumps})
	}
	slices.SortFunc(listing.Groups, Newest)
	return listing
}

// Newest orders groups: seen last comes first.
func Newest(a, b *stackdv1.HistoryGroup) int {
	return cmp.Or(b.GetLastSeenTime().AsTime().Compare(a.GetLastSeenTime().AsTime()), strings.Compare(a.GetFingerprint(), b.GetFingerprint()))
}

func mostFrequent(counts map[string]int64) (names []*stackdv1.HistoryGroup_NameCount) {
	sorted := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	for _, name := range sorted[:min(len(sorted), maxNames)] {
		names = append(names, &stackdv1.HistoryGroup_NameCount{Name: name, Count: counts[name]})
	}
	return names
}

// place is the pod, with its namespace where that is known.
func (r Record) place() string {
	pod, namespace := r.Labels[targets.PodLabel], r.Labels[targets.NamespaceLabel]
	if pod == "" || namespace == "" {
		return pod
	}
	return namespace + "/" + pod
}

// key is of no other record: programs of different pods may have dumps of one name.
func (r Record) key() string { return r.Digest + " " + r.place() + " " + r.Dump }

func (r Record) example() *stackdv1.FleetExample {
	return &stackdv1.FleetExample{Pod: r.Labels[targets.PodLabel], Target: targets.Target{Labels: r.Labels}.Name(), Dump: r.Dump}
}
