package targets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"
)

const maxFileBytes = 64 << 20

// File is a source in the form of Prometheus' file_sd: a list of {targets: [HOST:PORT], labels: {}} in YAML or JSON. A file that
// has changed is read again; one that has become faulty changes nothing.
type File struct {
	// A path, in whose last part "*" stands for any characters.
	pattern string

	mutex sync.Mutex
	read  map[string]*fileState
}

type fileState struct {
	changed time.Time
	size    int64
	targets []Target
	err     error
}

// NewFile returns a source; nothing is read yet.
func NewFile(pattern string) *File { return &File{pattern: pattern, read: map[string]*fileState{}} }

func (f *File) String() string { return f.pattern }

// Targets looks at each file of the pattern.
func (f *File) Targets(context.Context) ([]Target, error) {
	paths, err := filepath.Glob(f.pattern)
	if err != nil {
		return nil, fmt.Errorf("this is no pattern of paths: %w", err)
	}
	if len(paths) == 0 {
		return nil, errors.New("there is no such file")
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	var all []Target
	var faults []error
	now := make(map[string]*fileState, len(paths))
	for _, path := range paths {
		state := f.look(path)
		now[path] = state
		all = append(all, state.targets...)
		if state.err != nil {
			faults = append(faults, state.err)
		}
	}
	f.read = now
	return all, errors.Join(faults...)
}

func (f *File) look(path string) *fileState {
	before := f.read[path]
	info, err := os.Stat(path)
	if err == nil && before != nil && before.changed.Equal(info.ModTime()) && before.size == info.Size() {
		return before
	}
	state := &fileState{}
	if err == nil {
		state.changed, state.size = info.ModTime(), info.Size()
		state.targets, err = readFile(path)
	}
	if err != nil {
		state.err = err
		if before != nil {
			state.targets = before.targets
		}
	}
	return state
}

func readFile(path string) ([]Target, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFileBytes)
	}
	targets, err := ParseFile(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return targets, nil
}

// ParseFile reads the form of file_sd. JSON is YAML too.
func ParseFile(data []byte) ([]Target, error) {
	var groups []struct {
		Targets []string          `yaml:"targets"`
		Labels  map[string]string `yaml:"labels"`
	}
	// An empty list is written "[]". An empty file was cut short.
	if strings.TrimSpace(string(data)) == "" {
		return nil, errors.New("the file is empty: a list without targets is []")
	}
	if err := yaml.Unmarshal(data, &groups); err != nil {
		return nil, fmt.Errorf("this is not the form of file_sd: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	var targets []Target
	for _, group := range groups {
		labels := named(group.Labels)
		for _, address := range group.Targets {
			if err := checkAddress(address); err != nil {
				return nil, err
			}
			targets = append(targets, Target{Address: address, Labels: labels})
		}
	}
	return targets, nil
}

func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return fmt.Errorf("target %q: write like 10.0.3.7:7443", address)
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return fmt.Errorf("target %q: %q is no port", address, port)
	}
	if strings.ContainsAny(host, "/@? #\\%") {
		return fmt.Errorf("target %q: %q is no host", address, host)
	}
	return nil
}

// What Prometheus' discovery of pods calls what a selector asks for.
var metaLabels = map[string]string{
	"__meta_kubernetes_pod_name":            PodLabel,
	"__meta_kubernetes_namespace":           NamespaceLabel,
	"__meta_kubernetes_pod_node_name":       "node",
	"__meta_kubernetes_pod_container_name":  "container",
	"__meta_kubernetes_pod_controller_name": "workload",
}

// named drops labels that Prometheus keeps for itself, but for those that tell of pods.
func named(labels map[string]string) map[string]string {
	kept := make(map[string]string, len(labels))
	for key, value := range labels {
		if !strings.HasPrefix(key, "__") {
			kept[key] = value
		}
	}
	for meta, key := range metaLabels {
		if value := labels[meta]; value != "" && kept[key] == "" {
			kept[key] = value
		}
	}
	return kept
}
