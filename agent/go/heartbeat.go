//go:build linux && amd64

package stackd

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// stackd_heartbeat_cell of agent/include/stackd/ring_abi.h.
type cell struct {
	beats   uint64
	limitMs uint32
	tid     uint32
	name    [48]byte
}

const (
	heartbeatsOffset = 4096
	heartbeatsBytes  = 4096
	heartbeatsMost   = heartbeatsBytes / int(unsafe.Sizeof(cell{}))
	leastLimit       = 10 * time.Millisecond
)

// Heartbeat is a loop's promise to come by again and again. All methods may be called by any goroutine.
type Heartbeat struct {
	index   int // -1: all places were taken, it is not watched
	name    string
	limitMs uint32
	beats   atomic.Uint64
	idle    atomic.Bool
}

type heartbeatPage struct {
	mutex sync.RWMutex // beats read-lock it, so that no page goes away under one
	cells *[heartbeatsMost]cell
	page  []byte
	taken [heartbeatsMost]*Heartbeat
}

var heartbeats heartbeatPage

func mapHeartbeats(fd int) []byte {
	page, err := syscall.Mmap(fd, heartbeatsOffset, heartbeatsBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil
	}
	return page
}

// NewHeartbeat registers a loop under a name. When it has beaten once and then not for longer than `limit`, the daemon
// takes a dump. At most 64 may be registered at a time; more are not watched.
func NewHeartbeat(name string, limit time.Duration) *Heartbeat {
	if limit < leastLimit {
		limit = leastLimit
	}
	h := &Heartbeat{index: -1, name: name, limitMs: uint32(limit.Milliseconds())}
	h.idle.Store(true)
	heartbeats.mutex.Lock()
	defer heartbeats.mutex.Unlock()
	for i := range heartbeats.taken {
		if heartbeats.taken[i] == nil {
			h.index = i
			heartbeats.taken[i] = h
			heartbeats.write(h)
			break
		}
	}
	return h
}

// Beat says that the loop has come by.
func (h *Heartbeat) Beat() {
	h.idle.Store(false)
	h.show(h.beats.Add(1))
}

// Suspend says that the loop waits for something to do. The next beat resumes it.
func (h *Heartbeat) Suspend() {
	h.idle.Store(true)
	h.show(0)
}

// Close ends the promise.
func (h *Heartbeat) Close() {
	heartbeats.mutex.Lock()
	defer heartbeats.mutex.Unlock()
	if h.index < 0 || heartbeats.taken[h.index] != h {
		return
	}
	heartbeats.taken[h.index] = nil
	if heartbeats.cells != nil {
		atomic.StoreUint32(&heartbeats.cells[h.index].limitMs, 0)
	}
}

func (h *Heartbeat) show(beats uint64) {
	heartbeats.mutex.RLock()
	defer heartbeats.mutex.RUnlock()
	if heartbeats.cells != nil && h.index >= 0 && heartbeats.taken[h.index] == h {
		atomic.StoreUint64(&heartbeats.cells[h.index].beats, beats)
	}
}

// With the mutex. The limit goes last: it is what makes the cell valid.
func (p *heartbeatPage) write(h *Heartbeat) {
	if p.cells == nil {
		return
	}
	to := &p.cells[h.index]
	to.tid = 0 // a goroutine has no thread of its own
	to.name = [48]byte{}
	copy(to.name[:len(to.name)-1], h.name)
	beats := h.beats.Load()
	if h.idle.Load() {
		beats = 0
	}
	atomic.StoreUint64(&to.beats, beats)
	atomic.StoreUint32(&to.limitMs, h.limitMs)
}

// Another daemon, or none.
func (p *heartbeatPage) moveTo(page []byte) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	former := p.page
	p.page, p.cells = page, nil
	if page != nil {
		p.cells = (*[heartbeatsMost]cell)(unsafe.Pointer(&page[0]))
	}
	for _, h := range p.taken {
		if h != nil {
			p.write(h)
		}
	}
	if former != nil {
		syscall.Munmap(former)
	}
}
