// Go that calls C that calls Go, and C that blocks or crashes, under the agent for native code.
package main

/*
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

int call_back(int n);

static int c_outer(int n) { return n == 0 ? call_back(n) : c_outer(n - 1) + 1; }
static int c_blocks(int fd) { char byte; return (int)read(fd, &byte, 1); }
static int c_crashes(int* where) { return *where; }
static int c_naps(void) { return usleep(300); }
static int c_dozes(void) { return poll(NULL, 0, 1); }
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

var release = make(chan int)

//export call_back
func call_back(n C.int) C.int {
	goInside()
	return 0
}

//go:noinline
func goInside() {
	spinUntil = time.Now().Add(time.Hour)
	if len(os.Args) > 1 && os.Args[1] == "spin" {
		spin()
	}
	<-release
}

var spinUntil time.Time

//go:noinline
func spin() {
	for x := 0; ; x++ {
	}
}

//go:noinline
func throughC() { C.c_outer(3) }

//go:noinline
func blockInC(fd int) { C.c_blocks(C.int(fd)) }

//go:noinline
func napInC() { C.c_naps() }

//go:noinline
func dozeInC() { C.c_dozes() }

// By turns: of a thread that was seen in one call, the next look may find the other.
func takeTurns() {
	for {
		napInC()
		dozeInC()
	}
}

//go:noinline
func waitInGo() { <-release }

func main() {
	if len(os.Args) > 1 && os.Args[1] == "crash" {
		C.c_crashes(nil)
	}
	read, _, _ := os.Pipe()
	go throughC()
	go blockInC(int(read.Fd()))
	go waitInGo()
	if len(os.Args) > 1 && os.Args[1] == "turns" {
		for i := 0; i < 8; i++ {
			go takeTurns()
		}
	}
	runtime.Gosched()
	time.Sleep(200 * time.Millisecond)
	fmt.Println("ready")
	var buffer [1]byte
	os.Stdin.Read(buffer[:])
	C.c_crashes(nil)
}
