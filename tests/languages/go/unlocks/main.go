// Two goroutines wait for a lock. Who is to unlock it differs: one file each, chosen by a build tag. For one function that unlocks
// is enough to make all locks of a program uncertain. Says "ready" when they wait.
package main

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	_ "stackd.example/go"
)

var accounts sync.Mutex

// Comes from outside, which it never does.
var work = make(chan int)

// Returns when so many goroutines wait for locks, as the runtime has it.
func await(count int) {
	buffer := make([]byte, 1<<20)
	for strings.Count(string(buffer[:runtime.Stack(buffer, true)]), "[sync.") < count {
		time.Sleep(time.Millisecond)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Locks, and sees to it that something unlocks.
var hold func()

// What waits for the lock that hold() leaves locked: so many goroutines, each in this function.
var (
	followers = 2
	follow    = func() {
		accounts.Lock()
		accounts.Unlock()
	}
)

//go:noinline
func addFollowers() {
	for i := 0; i < followers; i++ {
		go follow()
	}
	await(followers)
}

func main() {
	var holds sync.WaitGroup
	holds.Add(1)
	// Ends: that it has locked shows on no stack.
	go func() {
		hold()
		holds.Done()
	}()
	holds.Wait()
	addFollowers()
	fmt.Println("ready")
	time.Sleep(time.Hour)
}
