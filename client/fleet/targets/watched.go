package targets

import (
	"context"
	"sync"
	"time"
)

// Watched is a source that remembers when it was last read without a fault.
type Watched struct {
	Source

	mutex sync.Mutex
	well  time.Time
	count int
}

// Watch returns a source that is as old as this moment until it is read.
func Watch(source Source) *Watched { return &Watched{Source: source, well: time.Now()} }

// Targets asks the source.
func (w *Watched) Targets(ctx context.Context) ([]Target, error) {
	found, err := w.Source.Targets(ctx)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.count = len(found)
	if err == nil {
		w.well = time.Now()
	}
	return found, err
}

// State is how many targets there were at the last look, and how old what is known of them is.
func (w *Watched) State() (count int, age time.Duration) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.count, time.Since(w.well)
}
