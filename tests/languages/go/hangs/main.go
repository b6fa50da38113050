// Goroutines that hang in locks beside a main that is well, and some that are well themselves: one mode each. Says "ready" when they
// are where they stay.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	_ "stackd.example/go"
)

// Returns when so many goroutines wait for this reason, as the runtime has it.
func await(reason string, count int) {
	buffer := make([]byte, 1<<20)
	for {
		text := string(buffer[:runtime.Stack(buffer, true)])
		if strings.Count(text, "["+reason) >= count {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

//go:noinline
func transfer(from, to *sync.Mutex, bothHoldOne *sync.WaitGroup) {
	from.Lock()
	bothHoldOne.Done()
	bothHoldOne.Wait()
	to.Lock()
}

func mutexCycle() {
	var savings, checking sync.Mutex
	var bothHoldOne sync.WaitGroup
	bothHoldOne.Add(2)
	go transfer(&savings, &checking, &bothHoldOne)
	go transfer(&checking, &savings, &bothHoldOne)
	await("sync.Mutex.Lock", 2)
}

//go:noinline
func lockTwice(lock *sync.Mutex) {
	lock.Lock()
	lock.Lock()
}

func mutexSelf() {
	go lockTwice(new(sync.Mutex))
	await("sync.Mutex.Lock", 1)
}

// Go's lock lets no reader pass a writer that waits.
//
//go:noinline
func readTwice(prices *sync.RWMutex) {
	prices.RLock()
	go prices.Lock()
	await("sync.RWMutex.Lock", 1)
	prices.RLock()
}

func readRecursion() {
	go readTwice(new(sync.RWMutex))
	await("sync.RWMutex.RLock", 1)
}

var work = make(chan int)

// Parked on a channel to which main could send.
func idlePool() {
	for i := 0; i < 4; i++ {
		go func() {
			for range work {
			}
		}()
	}
	await("chan receive", 4)
}

func timers() {
	for i := 0; i < 3; i++ {
		go func() {
			for range time.NewTicker(20 * time.Millisecond).C {
			}
		}()
	}
	await("chan receive", 3)
}

// By design: what they wait for never comes, and nothing waits for them.
func blockedForLife() {
	go func() { select {} }()
	go func() { <-make(chan int) }()
	go func() { (chan int)(nil) <- 1 }()
	var never sync.WaitGroup
	never.Add(1)
	go never.Wait()
	await("select (no cases)", 1)
	await("chan", 2)
}

// A lock for an instant each.
func hotMutex() {
	var lock sync.Mutex
	for i := 0; i < 4; i++ {
		go func() {
			for {
				lock.Lock()
				time.Now()
				lock.Unlock()
			}
		}()
	}
}

func main() {
	modes := map[string]func(){"blocked_for_life": blockedForLife, "hot_mutex": hotMutex, "idle_pool": idlePool,
		"mutex_cycle": mutexCycle, "mutex_self": mutexSelf, "read_recursion": readRecursion, "timers": timers}
	start := modes[os.Args[1]]
	if start == nil {
		fmt.Fprintln(os.Stderr, "no such mode")
		os.Exit(2)
	}
	start()
	fmt.Println("ready")
	time.Sleep(time.Hour)
}
