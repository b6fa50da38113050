// Go calls C, which calls Go, which waits in a call of the system. With "twice", Go calls C once more before that; with
// "thread", a thread that C has made calls Go.
package main

/*
#include <pthread.h>
#include <stddef.h>

extern void calledBack(void);

__attribute__((noinline)) static void through_c(void) {
  calledBack();
  __asm__ volatile("");
}

static void c_calls_back(void) {
  through_c();
  __asm__ volatile("");
}

static void* c_thread(void* unused) {
  (void)unused;
  through_c();
  return NULL;
}

static void c_waits_for_thread(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, c_thread, NULL) == 0) pthread_join(thread, NULL);
}
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
)

var callsLeft = 1

//export calledBack
func calledBack() {
	if callsLeft--; callsLeft > 0 {
		outermost()
	}
	innermost()
}

//go:noinline
func innermost() {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for first := true; ; first = false {
		frame, more := frames.Next()
		line := frame.Line
		if first {
			line = 0
		}
		fmt.Println("own", frame.Function, line)
		if !more {
			break
		}
	}
	fmt.Println("ready")
	syscall.Read(0, make([]byte, 1))
}

//go:noinline
func outermost() {
	C.c_calls_back()
}

func main() {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "twice":
		callsLeft = 2
		outermost()
	case len(os.Args) > 1 && os.Args[1] == "thread":
		C.c_waits_for_thread()
	default:
		outermost()
	}
}
