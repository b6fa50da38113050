// Ends in the way that its argument says. Links the stackd package, and changes nothing of what the runtime does.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	stackd "stackd.example/go"
)

const secret = "hunter2"

var kept []byte

// Where it is built with cgo, and then it can run under the agent for native code.
var failInC func() int

//go:noinline
func fail(word string) int {
	switch word {
	case "nil":
		var where *int
		return *where
	case "index":
		return len(word[len(os.Args)+100:])
	case "panic":
		panic(errors.New("password " + secret))
	case "overflow":
		debug.SetMaxStack(16 << 20) // instead of 1 GB
		return overflow(1)
	case "maps":
		return writeMaps()
	case "memory":
		return fillMemory()
	case "c":
		return failInC()
	case "deadlock":
		select {}
	}
	return 0
}

//go:noinline
func overflow(n int) int { return overflow(n+1) + 1 }

//go:noinline
func writeMaps() int {
	shared := map[int]int{}
	for i := 0; i < 4; i++ {
		go func() {
			for n := 0; ; n++ {
				shared[n%100] = n
			}
		}()
	}
	time.Sleep(10 * time.Second)
	return len(shared)
}

//go:noinline
func fillMemory() int {
	const limit = 4 << 30
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		panic(err)
	}
	kept = make([]byte, 2*limit)
	return len(kept)
}

//go:noinline
func waitForNobody() { select {} }

func recovered() (caught bool) {
	defer func() { caught = recover() != nil }()
	fail("nil")
	return false
}

func main() {
	stackd.SetProcessName("ends-" + os.Args[1])
	fmt.Println("ready")
	var buffer [1]byte
	os.Stdin.Read(buffer[:])
	if os.Args[1] == "recovered" {
		caught := 0
		for i := 0; i < 1000; i++ {
			if recovered() {
				caught++
			}
		}
		fmt.Println("caught", caught)
		os.Stdin.Read(buffer[:])
		return
	}
	for i := 0; i < 2; i++ {
		go waitForNobody()
	}
	fail(os.Args[1])
}
