//go:build linux && amd64

package stackd

import (
	"math/bits"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// stackd_ring_header of agent/include/stackd/ring_abi.h, as far as this package uses it.
type ringHeader struct {
	magic          uint64
	abiVersion     uint32
	headerBytes    uint32
	slotBytes      uint32
	slotCount      uint32
	crashSlotCount uint32
	_              [9]uint32

	commandSeq    uint32
	command       uint32
	deadlineNs    uint64
	maxStackBytes uint32
	cancelSeq     uint32
	onlyTid       uint32
	_             [9]uint32

	helperSleeping uint32
	begunSeq       uint32
	threadsListed  uint32
	doneSeq        uint32
	mapsGeneration uint32
	failure        int32
	_              [10]uint32

	doorbell       uint32
	readerSleeping uint32
	_              [14]uint32

	_     [16]uint64 // of crashes and drops
	free  [64]uint64
	ready [64]uint64
}

const (
	ringMagic       = 0x31676e5264636b53
	ringHeaderBytes = 8192
	slotBytes       = 2048
	slotHeaderBytes = 8
	noSlot          = ^uint32(0)
	mostSlots       = 4096
)

type ring struct {
	memory []byte
	header *ringHeader
	// Slots that live dumps may use.
	slots uint32
	// Number of the last command that was obeyed.
	seq uint32
}

// Nil: there is no memory for it, or the daemon has another version of it.
func mapRing(fd int, size uint32) *ring {
	if size < ringHeaderBytes+slotBytes || size > ringHeaderBytes+mostSlots*slotBytes {
		return nil
	}
	memory, err := syscall.Mmap(fd, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil
	}
	h := (*ringHeader)(unsafe.Pointer(&memory[0]))
	r := &ring{memory: memory, header: h, slots: h.slotCount - h.crashSlotCount}
	if h.magic != ringMagic || h.abiVersion != abiVersion || h.headerBytes != ringHeaderBytes || h.slotBytes != slotBytes ||
		h.crashSlotCount > h.slotCount || ringHeaderBytes+uint64(h.slotCount)*slotBytes > uint64(size) {
		r.unmap()
		return nil
	}
	return r
}

func (r *ring) unmap() {
	if r != nil {
		syscall.Munmap(r.memory)
	}
}

// Whether the daemon wrote a command before it was told to say so.
func (r *ring) listen() {
	if r != nil {
		atomic.StoreUint32(&r.header.helperSleeping, 1)
		r.obey()
	}
}

func (r *ring) slot(number uint32) []byte {
	start := ringHeaderBytes + number*slotBytes
	return r.memory[start : start+slotBytes]
}

func setBits(word *uint64, bits uint64) {
	for before := atomic.LoadUint64(word); !atomic.CompareAndSwapUint64(word, before, before|bits); {
		before = atomic.LoadUint64(word)
	}
}

// Takes so many slots, or none.
func (r *ring) claim(count int) []uint32 {
	var claimed []uint32
	for i := uint32(0); i < (r.slots+63)/64 && len(claimed) < count; i++ {
		word := &r.header.free[i]
		for len(claimed) < count {
			before := atomic.LoadUint64(word)
			candidates := before
			if r.slots-i*64 < 64 {
				candidates &= 1<<(r.slots-i*64) - 1
			}
			if candidates == 0 {
				break
			}
			number := bits.TrailingZeros64(candidates)
			if atomic.CompareAndSwapUint64(word, before, before&^(1<<number)) {
				claimed = append(claimed, i*64+uint32(number))
			}
		}
	}
	if len(claimed) < count {
		r.release(claimed)
		return nil
	}
	return claimed
}

func (r *ring) release(slots []uint32) {
	for _, number := range slots {
		setBits(&r.header.free[number/64], 1<<(number%64))
	}
}

// A record, which begins with the header of its first slot. False if there is no room for it now.
func (r *ring) write(record []byte) bool {
	count := 1
	if len(record) > slotBytes {
		count += (len(record) - slotBytes + slotBytes - slotHeaderBytes - 1) / (slotBytes - slotHeaderBytes)
	}
	slots := r.claim(count)
	if slots == nil {
		return false
	}
	for i, number := range slots {
		to := r.slot(number)
		next := noSlot
		if i+1 < len(slots) {
			next = slots[i+1]
		}
		if i == 0 {
			record = record[copy(to, record):]
		} else {
			record = record[copy(to[slotHeaderBytes:], record):]
			*(*uint32)(unsafe.Pointer(&to[4])) = 0
		}
		*(*uint32)(unsafe.Pointer(&to[0])) = next
	}
	setBits(&r.header.ready[slots[0]/64], 1<<(slots[0]%64))
	return true
}

// Wakes the daemon if it sleeps.
func (r *ring) ring() {
	const futexWake, everybody = 1, 1 << 30
	atomic.AddUint32(&r.header.doorbell, 1)
	if atomic.LoadUint32(&r.header.readerSleeping) != 0 {
		syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&r.header.doorbell)), futexWake, everybody, 0, 0, 0)
	}
}
