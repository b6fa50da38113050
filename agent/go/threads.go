//go:build linux && amd64

package stackd

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	commandDump = 1

	recordThread = 1
	recordStatus = 2

	threadTruncated = 1 << 0
	threadNoStack   = 1 << 3

	threadRecordBytes = 288
	statusEntryBytes  = 56

	// stackd_thread_status.
	statusSignalBlocked   = 2
	statusUninterruptible = 3
	statusStopped         = 4
	statusExited          = 5
	statusTimedOut        = 6
	statusRingFull        = 7
	statusSignalQueueFull = 8
)

// One dump of all threads, or of one.
type threadDump struct {
	ring     *ring
	seq      uint32
	deadline time.Time
	code     []span
	written  uint32
	stackMax uint64
}

type span struct{ start, end uint64 }

func (s span) holds(word uint64) bool { return word >= s.start && word < s.end }

type thread struct {
	tid      int
	name     string
	state    byte // as in /proc
	blocks   bool // the signal
	pending  bool // one waits for it, or it has not come to take it
	status   uint8
	question *question // nil: it was not asked, or has been settled
}

// Does what the daemon has written into the ring since the last time.
func (r *ring) obey() {
	if r == nil {
		return
	}
	h := r.header
	seq := atomic.LoadUint32(&h.commandSeq)
	if seq == r.seq {
		return
	}
	r.seq = seq
	failure := syscall.ENOTSUP
	if h.command == commandDump {
		failure = r.dump(seq)
	}
	h.failure = -int32(failure)
	atomic.StoreUint32(&h.doneSeq, seq)
	r.ring()
}

func (r *ring) dump(seq uint32) syscall.Errno {
	h := r.header
	if !handlerIsOurs() {
		return syscall.EBUSY
	}
	tids, err := ownThreads()
	if err != nil {
		code, _ := err.(syscall.Errno)
		return code
	}
	if only := int(h.onlyTid); only != 0 {
		tids = []int{only}
	}
	d := threadDump{ring: r, seq: seq, deadline: timeAt(h.deadlineNs), code: ownCode(), stackMax: uint64(h.maxStackBytes)}
	atomic.StoreUint32(&h.threadsListed, uint32(len(tids)))
	atomic.StoreUint32(&h.begunSeq, seq)
	for len(tids) > 0 && !d.isOver() {
		var asked []*thread
		for len(tids) > 0 && len(asked) < questionCount {
			asked = append(asked, d.ask(tids[0]))
			tids = tids[1:]
		}
		for _, t := range asked {
			d.settle(t)
		}
	}
	// Without those that ended meanwhile.
	atomic.StoreUint32(&h.threadsListed, d.written+uint32(len(tids)))
	return 0
}

func (d *threadDump) isOver() bool {
	return time.Now().After(d.deadline) || atomic.LoadUint32(&d.ring.header.cancelSeq) == d.seq
}

func timeAt(ns uint64) time.Time { return time.Now().Add(time.Duration(ns - monotonicNs())) }

func ownThreads() ([]int, error) {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, syscall.EACCES
	}
	var tids []int
	for _, entry := range entries {
		if tid, err := strconv.Atoi(entry.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, nil
}

func ownCode() []span {
	maps, _ := os.ReadFile("/proc/self/maps")
	var code []span
	for _, line := range strings.Split(string(maps), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.Contains(fields[1], "x") {
			continue
		}
		start, end, _ := strings.Cut(fields[0], "-")
		from, err := strconv.ParseUint(start, 16, 64)
		to, err2 := strconv.ParseUint(end, 16, 64)
		if err == nil && err2 == nil {
			code = append(code, span{from, to})
		}
	}
	return code
}

// By when a thread that is not stuck in the kernel has answered.
const answerLimit = 20 * time.Millisecond

// A thread that blocks the signal is never sent it: there it would wait, and end a program that this process becomes. Nor is
// one that is about to become another program.
func (d *threadDump) ask(tid int) *thread {
	t := &thread{tid: tid}
	t.look()
	switch {
	case t.status != 0:
		return t
	case t.blocks || t.pending:
		t.status = statusSignalBlocked
		return t
	case t.isInExec():
		t.status = statusTimedOut
		return t
	}
	t.question = takeQuestion()
	if t.question == nil {
		t.status = statusTimedOut
		return t
	}
	if failed := t.question.ask(tid); failed != 0 {
		t.forget(statusExited)
		if failed == syscall.EAGAIN {
			t.status = statusSignalQueueFull
		}
	}
	return t
}

func (t *thread) forget(status uint8) {
	t.question.release()
	t.question, t.status = nil, status
}

func (t *thread) folder() string { return "/proc/self/task/" + strconv.Itoa(t.tid) }

// Sets its status where it can answer nothing.
func (t *thread) look() {
	status, err := os.ReadFile(t.folder() + "/status")
	if err != nil {
		t.status = statusTimedOut
		if pathError, ok := err.(*os.PathError); ok && (pathError.Err == syscall.ENOENT || pathError.Err == syscall.ESRCH) {
			t.status = statusExited
		}
		return
	}
	for _, line := range bytes.Split(status, []byte("\n")) {
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch string(field) {
		case "Name":
			t.name = string(value)
		case "State":
			if len(value) > 0 {
				t.state = value[0]
			}
		case "SigBlk":
			t.blocks = holdsSignal(value)
		case "SigPnd":
			t.pending = holdsSignal(value)
		}
	}
	switch t.state {
	case 'Z', 'X':
		t.status = statusExited
	case 'T', 't':
		t.status = statusStopped
	}
}

func holdsSignal(mask []byte) bool {
	signals, _ := strconv.ParseUint(string(mask), 16, 64)
	return signals&(1<<(dumpSignal-1)) != 0
}

func (t *thread) isInExec() bool {
	const sysExecveat = 322
	call, _ := os.ReadFile(t.folder() + "/syscall")
	number, _, _ := bytes.Cut(call, []byte(" "))
	return string(number) == strconv.Itoa(syscall.SYS_EXECVE) || string(number) == strconv.Itoa(sysExecveat)
}

func (d *threadDump) settle(t *thread) {
	if q := t.question; q != nil {
		if !d.await(t) {
			t.forget(t.whySilent())
		} else if d.write(d.threadRecord(t)) {
			q.release()
			t.status = 0 // whatever has become of it since
		} else {
			t.forget(statusRingFull)
		}
	}
	if t.status != 0 && t.status != statusExited {
		d.write(d.statusRecord(t))
	}
}

// A thread that could run, and waits for a processor, is waited for.
func (d *threadDump) await(t *thread) bool {
	for {
		if t.question.await(earlier(d.deadline, time.Now().Add(answerLimit))) {
			return true
		}
		t.look()
		if t.status != 0 || t.blocks || t.state != 'R' || d.isOver() {
			return t.question.isAnswered()
		}
	}
}

func (t *thread) whySilent() uint8 {
	switch {
	case t.status != 0:
		return t.status
	case t.blocks:
		return statusSignalBlocked
	case t.state == 'D':
		return statusUninterruptible
	default:
		return statusTimedOut
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Waits for room, which the daemon makes.
func (d *threadDump) write(record []byte) bool {
	for !d.ring.write(record) {
		if d.isOver() {
			return false
		}
		d.ring.ring()
		time.Sleep(100 * time.Microsecond)
	}
	d.written++
	return true
}

func (d *threadDump) statusRecord(t *thread) []byte {
	var w message
	w.number32(noSlot)
	w.number32(recordStatus)
	w.number32(d.seq)
	w.number32(1)
	w.number32(uint32(t.tid))
	w.Write([]byte{t.status, t.state, 0, 0})
	w.text(t.name, 16)
	w.text("", 32)
	return w.Bytes()
}

// The kernel's order of registers in that of DWARF: rax rdx rcx rbx rsi rdi rbp rsp r8 to r15 rip.
var dwarfOrder = [registerCount]int{13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7, 16}

const registerRsp = 15

// Only words that point into code or into this stack leave the process.
func (d *threadDump) threadRecord(t *thread) []byte {
	q := t.question
	flags := uint32(0)
	base := q.registers[registerRsp]
	words := uint64(0)
	if q.stackBytes > 0 && base%8 == 0 {
		words = uint64(q.stackBytes) / 8
		if most := d.stackMax / 8; words > most {
			words = most
			flags |= threadTruncated
		}
		if uint64(q.stackBytes) == uint64(unsafe.Sizeof(q.stack)) {
			flags |= threadTruncated
		}
	} else {
		flags |= threadNoStack
	}
	stack := span{base, base + 8*words}
	keeps := func(word uint64) bool {
		if stack.holds(word) {
			return true
		}
		for _, code := range d.code {
			if code.holds(word) {
				return true
			}
		}
		return false
	}
	var payload message
	for first := uint64(0); first < words; first += 64 {
		last := first + 64
		if last > words {
			last = words
		}
		var mask uint64
		var kept []uint64
		for i := first; i < last; i++ {
			if keeps(q.stack[i]) {
				mask |= 1 << (i - first)
				kept = append(kept, q.stack[i])
			}
		}
		payload.number64(mask)
		for _, word := range kept {
			payload.number64(word)
		}
	}

	var w message
	w.number32(noSlot)
	w.number32(recordThread)
	w.number32(d.seq)
	w.number32(uint32(t.tid))
	w.number32(flags)
	w.number32(0) // how long the handler took: it has no clock
	w.number64(monotonicNs())
	w.number64(cpuNs(t.tid))
	w.number64(0) // no descriptor of a C library
	w.text(t.name, 16)
	for _, from := range dwarfOrder {
		word := q.registers[from]
		if from != registerRsp && !keeps(word) {
			word = 0
		}
		w.number64(word)
	}
	w.number64(base)
	w.number32(uint32(words))
	w.number32(uint32(payload.Len() / 8))
	w.number64(0) // no other stack
	w.number32(0)
	w.number32(0) // nothing of other runtimes
	w.Write(make([]byte, threadRecordBytes-w.Len()))
	w.Write(payload.Bytes())
	return w.Bytes()
}

func monotonicNs() uint64 { return clockNs(1) }

// The clock of a thread's processor time has its id in its number.
func cpuNs(tid int) uint64 {
	const perThread, schedule = 4, 2
	return clockNs(^uintptr(tid)<<3 | perThread | schedule)
}

func clockNs(clock uintptr) uint64 {
	var now syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&now)), 0)
	return uint64(now.Nano())
}
