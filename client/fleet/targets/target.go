// Package targets finds the daemons of a fleet: in files of Prometheus' file_sd form, and by DNS.
package targets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// Labels that selectors and names use.
const (
	PodLabel       = "pod"
	NamespaceLabel = "namespace"
)

// More of them are not taken from a source.
const maxTargets = 100_000

// Target is a daemon, and what its source says of the pod beside it.
type Target struct {
	// HOST:PORT
	Address string
	Labels  map[string]string
}

// Name is that of the API: by pod where the source knows it, else by address.
func (t Target) Name() string {
	if pod := t.Labels[PodLabel]; pod != "" {
		if namespace := t.Labels[NamespaceLabel]; namespace != "" {
			return "targets/" + namespace + "/" + pod
		}
		return "targets/" + pod
	}
	return "targets/" + t.Address
}

// Pod is the name of the pod, or the address where the source does not know it.
func (t Target) Pod() string { return cmp.Or(t.Labels[PodLabel], t.Address) }

// Slice returns the targets in one of `count` slices. A target is in the same slice at each gateway.
func Slice(all []Target, index, count int) []Target {
	var taken []Target
	for _, target := range all {
		digest := fnv.New32a()
		digest.Write([]byte(target.Name()))
		if digest.Sum32()%uint32(count) == uint32(index) {
			taken = append(taken, target)
		}
	}
	return taken
}

// Source knows targets.
type Source interface {
	// Targets returns those of now. With an error it may return targets all the same: those of before.
	Targets(ctx context.Context) ([]Target, error)
	fmt.Stringer
}

// List is what all sources know.
type List struct {
	// By name; of two targets at one address the first.
	Targets []Target
	// What is wrong with the sources, one sentence each.
	Problems []string
}

// ErrNone says that no source could be read.
var ErrNone = errors.New("no source of targets could be read")

// ListAll asks each source.
func ListAll(ctx context.Context, sources []Source) (List, error) {
	var list List
	known := map[string]bool{}
	failed := 0
	for _, source := range sources {
		found, err := source.Targets(ctx)
		if err != nil {
			list.Problems = append(list.Problems, fmt.Sprintf("%s: %v", source, err))
			if len(found) == 0 {
				failed++
			}
		}
		for _, target := range found {
			if len(list.Targets) == maxTargets {
				list.Problems = append(list.Problems, fmt.Sprintf("%s: more than %d targets: the rest is left out", source, maxTargets))
				break
			}
			if !known[target.Address] {
				known[target.Address] = true
				list.Targets = append(list.Targets, target)
			}
		}
	}
	if failed == len(sources) && failed > 0 {
		return list, fmt.Errorf("%w: %s", ErrNone, strings.Join(list.Problems, "; "))
	}
	slices.SortFunc(list.Targets, func(a, b Target) int {
		return cmp.Or(strings.Compare(a.Name(), b.Name()), strings.Compare(a.Address, b.Address))
	})
	return list, nil
}
