//go:build linux && amd64

package stackd

import (
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

func installedHandler(t *testing.T) {
	t.Helper()
	if questions == nil && !installHandler() {
		t.Fatal("the signal is taken")
	}
	if !handlerIsOurs() {
		t.Fatal("the handler is not there")
	}
}

func take(t *testing.T) *question {
	t.Helper()
	q := takeQuestion()
	if q == nil {
		t.Fatal("all questions are in use")
	}
	return q
}

//go:noinline
func spinUntil(stop *atomic.Bool, tid chan int) {
	runtime.LockOSThread()
	tid <- syscall.Gettid()
	for !stop.Load() {
	}
}

func functionAt(pc uint64) string {
	if f := runtime.FuncForPC(uintptr(pc)); f != nil {
		return f.Name()
	}
	return ""
}

func TestAThreadAnswersWithItsRegistersAndItsStack(t *testing.T) {
	installedHandler(t)
	var stop atomic.Bool
	tids := make(chan int)
	go spinUntil(&stop, tids)
	defer stop.Store(true)
	tid := <-tids
	// It may be interrupted where the runtime runs, on a stack of its own.
	for i := 0; ; i++ {
		q := take(t)
		if failed := q.ask(tid); failed != 0 {
			t.Fatal(failed)
		}
		if !q.await(time.Now().Add(10 * time.Second)) {
			t.Fatal("no answer")
		}
		seen := functionAt(q.registers[registerCount-1])
		if !strings.HasSuffix(seen, ".spinUntil") && seen != "sync/atomic.(*Bool).Load" {
			if i == 1000 {
				t.Fatal(seen)
			}
			q.release()
			continue
		}
		if q.stackBytes <= 0 {
			t.Fatal(q.stackBytes)
		}
		for _, word := range q.stack[:q.stackBytes/8] {
			if functionAt(word) == "runtime.goexit" {
				q.release()
				return
			}
		}
		t.Fatal("the stack does not reach its first function")
	}
}

// Blocks all signals, so that the handler comes when the caller of the returned function likes.
func blockSignals(t *testing.T) (unblock func()) {
	runtime.LockOSThread()
	const setMask = 2
	all, former := ^uint64(0), uint64(0)
	mask := func(set, old *uint64) {
		_, _, failed := syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(set)),
			uintptr(unsafe.Pointer(old)), 8, 0, 0)
		if failed != 0 {
			t.Fatal(failed)
		}
	}
	mask(&all, &former)
	return func() { mask(&former, nil); runtime.UnlockOSThread() }
}

func TestALateAnswerIsDropped(t *testing.T) {
	installedHandler(t)
	unblock := blockSignals(t)
	late := take(t)
	if failed := late.ask(syscall.Gettid()); failed != 0 {
		t.Fatal(failed)
	}
	late.release()
	again := take(t)
	if again != late {
		t.Fatal("a question that nobody has is not used again")
	}
	again.registers[0] = 7
	unblock()
	if again.registers[0] != 7 || again.isAnswered() {
		t.Fatal("it answered what it was not asked")
	}
	again.release()
}

func TestTheSignalOfAnotherIsNoQuestion(t *testing.T) {
	installedHandler(t)
	q := take(t)
	const number = 1 << 32
	places[q.place()].number = number
	atomic.StoreUint64(&q.asked, number)
	q.registers[0] = 7
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := syscall.Tgkill(os.Getpid(), syscall.Gettid(), dumpSignal); err != nil {
		t.Fatal(err)
	}
	if q.registers[0] != 7 || q.isAnswered() || atomic.LoadUint64(&q.asked) != number {
		t.Fatal("nobody was asked")
	}
	q.release()
}
