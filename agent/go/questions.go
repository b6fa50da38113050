//go:build linux && amd64

package stackd

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// The thread of a running goroutine has its registers where no other thread can see them. So it is asked, by the signal
// that the agent for native code asks by; dumpHandler (handler_linux_amd64.s) answers.

const (
	dumpSignal    = 34 // Go leaves it alone, and unblocks it
	questionCount = 8
	stackWords    = 8192
	registerCount = 17

	sysRtTgsigqueueinfo = 297
	fromQueue           = -1 // SI_QUEUE
)

// As the handler knows it.
type question struct {
	asked      uint64 // its number; 0: no answer is awaited, or the handler has it
	done       uint64 // the number that was answered last
	registers  [registerCount]uint64
	stackBytes int64 // or a negative errno
	to, from   struct {
		base  uintptr
		bytes uint64
	}
	stack [stackWords]uint64
}

var (
	// Outside of Go's memory, so that nothing ever moves or frees what a late handler writes to.
	questions *[questionCount]question
	ownPid    uint32
	// Grows by 256: the lowest byte of a number is the question's place.
	nextNumber uint64
)

func dumpHandler()
func returnFromHandler()
func handlerAddresses() (handler, restorer uintptr)

type kernelSigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

func sigaction(set, former *kernelSigaction) bool {
	_, _, failed := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, dumpSignal, uintptr(unsafe.Pointer(set)),
		uintptr(unsafe.Pointer(former)), unsafe.Sizeof(set.mask), 0, 0)
	return failed == 0
}

// False where the signal belongs to other code: a C library, the program.
func installHandler() bool {
	const onStack, restart, sigInfo, hasRestorer = 0x08000000, 0x10000000, 4, 0x04000000
	var former kernelSigaction
	if !sigaction(nil, &former) || former.handler != 0 {
		return false
	}
	memory, err := syscall.Mmap(-1, 0, int(unsafe.Sizeof(*questions)), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		return false
	}
	questions = (*[questionCount]question)(unsafe.Pointer(&memory[0]))
	ownPid = uint32(os.Getpid())
	handler, restorer := handlerAddresses()
	installed := sigaction(&kernelSigaction{handler, onStack | restart | sigInfo | hasRestorer, restorer, ^uint64(0)}, nil)
	if !installed {
		questions = nil
		syscall.Munmap(memory)
	}
	return installed
}

func handlerIsOurs() bool {
	var current kernelSigaction
	handler, _ := handlerAddresses()
	return questions != nil && sigaction(nil, &current) && current.handler == handler
}

// What only the goroutine that asks knows of each question.
var places [questionCount]struct {
	number uint64 // that it was asked by; 0: no handler writes to it
	inUse  bool
}

// A question that is free, also of a late handler; or nil.
func takeQuestion() *question {
	for i := range questions {
		q, place := &questions[i], &places[i]
		if place.inUse || place.number != 0 && !q.isAnswered() {
			continue
		}
		place.number, place.inUse = 0, true
		q.from.base, q.from.bytes = 0, uint64(unsafe.Sizeof(q.stack))
		q.to.base, q.to.bytes = uintptr(unsafe.Pointer(&q.stack[0])), uint64(unsafe.Sizeof(q.stack))
		return q
	}
	return nil
}

func (q *question) place() int {
	return int((uintptr(unsafe.Pointer(q)) - uintptr(unsafe.Pointer(questions))) / unsafe.Sizeof(*q))
}

func (q *question) isAnswered() bool {
	number := places[q.place()].number
	return number != 0 && atomic.LoadUint64(&q.done) == number
}

// Sends it to a thread.
func (q *question) ask(tid int) syscall.Errno {
	place := q.place()
	nextNumber += 256
	number := nextNumber | uint64(place)
	places[place].number = number
	var info [16]uint64
	*(*int32)(unsafe.Pointer(&info[0])) = dumpSignal
	*(*int32)(unsafe.Pointer(&info[1])) = fromQueue
	*(*uint32)(unsafe.Pointer(&info[2])) = ownPid
	info[3] = number
	atomic.StoreUint64(&q.asked, number)
	_, _, failed := syscall.RawSyscall6(sysRtTgsigqueueinfo, uintptr(ownPid), uintptr(tid), dumpSignal,
		uintptr(unsafe.Pointer(&info[0])), 0, 0)
	return failed
}

// Waits until it is answered, `until` at most.
func (q *question) await(until time.Time) bool {
	for pause := 10 * time.Microsecond; !q.isAnswered(); pause = min2(2*pause, time.Millisecond) {
		if time.Now().After(until) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// A handler that comes later finds that no dump asks. One that has begun will end.
func (q *question) release() {
	place := &places[q.place()]
	if atomic.CompareAndSwapUint64(&q.asked, place.number, 0) {
		place.number = 0
	}
	place.inUse = false
}
