// Go calls C, which calls Go, which waits in a call of the system.
package main

/*
extern void calledBack(void);

__attribute__((noinline)) static void through_c(void) {
  calledBack();
  __asm__ volatile("");
}

static void c_calls_back(void) {
  through_c();
  __asm__ volatile("");
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"syscall"
)

//export calledBack
func calledBack() {
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
	outermost()
}
