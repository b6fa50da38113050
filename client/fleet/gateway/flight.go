package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/collect"
	"stackd.example/fleet/merge"
	"stackd.example/fleet/targets"
)

const (
	// Fleet dumps that are made at once.
	maxFlights = 4
	// Fleet dumps that are kept, and what they may take.
	maxKept      = 16
	maxKeptBytes = 64 << 20
)

// flight is a fleet dump while it is made. Equal requests share it; it ends when none is left that waits for it.
type flight struct {
	key string
	// Namespaces of its targets: who sees them all may see the dump.
	namespaces []string
	end        time.Time
	cancel     context.CancelFunc

	mutex    sync.Mutex
	waiting  int
	progress collect.Progress
	dump     *stackdv1.FleetDump
	// Closed at each change, and made anew.
	changed chan struct{}
	// Closed when the dump is there.
	done chan struct{}
}

func (f *flight) set(change func()) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

// look returns what there is, and what tells of the next change.
func (f *flight) look() (collect.Progress, *stackdv1.FleetDump, <-chan struct{}) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.progress, f.dump, f.changed
}

// keptDump is one of the last, for those who see its namespaces.
type keptDump struct {
	dump       *stackdv1.FleetDump
	namespaces []string
}

// flights are all that are made, and the dumps of the last ones.
type flights struct {
	collector *collect.Collector
	measures  *measures

	mutex   sync.Mutex
	running map[string]*flight
	kept    []keptDump
}

// join returns the flight of an equal request that ends in time for the caller, or begins one; nil: there are too many.
func (f *flights) join(seen *view, all []targets.Target, request *stackdv1.CreateFleetDumpRequest, end, latest time.Time) *flight {
	bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return nil
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	key, namespaces := string(bytes), namespacesOf(all)
	if seen != nil {
		// Equal requests mean other targets where other namespaces are seen.
		key += "\x00" + strings.Join(namespaces, ",")
	}
	if running := f.running[key]; running != nil && !running.end.After(latest) {
		running.mutex.Lock()
		defer running.mutex.Unlock()
		if running.waiting > 0 {
			running.waiting++
			f.measures.shared.Inc()
			return running
		}
	}
	if len(f.running) >= maxFlights {
		return nil
	}
	ctx, cancel := context.WithDeadline(context.Background(), end)
	started := &flight{key: key, namespaces: namespaces, end: end, cancel: cancel, waiting: 1, changed: make(chan struct{}), done: make(chan struct{})}
	if f.running[key] != nil {
		// The key belongs to one that cannot be shared.
		started.key = key + newID()
	}
	f.running[started.key] = started
	go f.fly(ctx, started, all, request)
	return started
}

func (f *flights) fly(ctx context.Context, one *flight, all []targets.Target, request *stackdv1.CreateFleetDumpRequest) {
	dump := f.collector.Collect(ctx, all, request, func(progress collect.Progress) {
		one.set(func() { one.progress = progress })
	})
	one.cancel()
	last, _, _ := one.look()
	f.measures.count(dump, last)
	dump.Name = "fleetDumps/" + newID()
	if dump.GetPart() == nil {
		dump.Lines = merge.Lines(dump)
	}
	f.mutex.Lock()
	delete(f.running, one.key)
	f.keep(keptDump{dump, one.namespaces})
	f.mutex.Unlock()
	one.set(func() { one.dump = dump })
	close(one.done)
}

// leave is called once by each caller that joined.
func (f *flights) leave(one *flight) {
	one.mutex.Lock()
	defer one.mutex.Unlock()
	if one.waiting--; one.waiting == 0 {
		one.cancel()
	}
}

func (f *flights) count() int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return len(f.running)
}

func (f *flights) keep(one keptDump) {
	f.kept = append(f.kept, one)
	for total := f.keptBytes(); len(f.kept) > maxKept || len(f.kept) > 1 && total > maxKeptBytes; total = f.keptBytes() {
		f.kept = f.kept[1:]
	}
}

func (f *flights) keptBytes() (total int) {
	for _, one := range f.kept {
		total += proto.Size(one.dump)
	}
	return total
}

// find returns a dump by name, the newest for an empty one, or nil: of those that the caller sees.
func (f *flights) find(name string, seen *view) *stackdv1.FleetDump {
	f.mutex.Lock()
	kept := slices.Clone(f.kept)
	f.mutex.Unlock()
	for _, one := range slices.Backward(kept) {
		unseen := func(namespace string) bool { return !seen.sees(namespace) }
		if (name == "" || one.dump.GetName() == name) && !slices.ContainsFunc(one.namespaces, unseen) {
			return one.dump
		}
	}
	return nil
}

func namespacesOf(all []targets.Target) []string {
	found := map[string]bool{}
	for _, target := range all {
		found[target.Labels[targets.NamespaceLabel]] = true
	}
	return slices.Sorted(maps.Keys(found))
}

func newID() string {
	var id [8]byte
	// It never fails: crypto/rand ends the program instead.
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}
