// Goroutines that hang in locks beside a main that is well, and some that are well themselves: one mode each. Says "ready" when they
// are where they stay.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
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

var accounts, orders sync.Mutex

//go:noinline
func pay(bothHoldOne *sync.WaitGroup) {
	accounts.Lock()
	bothHoldOne.Done()
	bothHoldOne.Wait()
	orders.Lock()
}

//go:noinline
func ship(bothHoldOne *sync.WaitGroup) {
	orders.Lock()
	bothHoldOne.Done()
	bothHoldOne.Wait()
	accounts.Lock()
}

// Beside goroutines that wait for connections, the time and a signal, as in a server.
func cycleInServer() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go http.Serve(listener, http.NotFoundHandler())
	connection, err := net.Dial("tcp", listener.Addr().String())
	check(err)
	go io.Copy(io.Discard, connection)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	go func() { <-signals }()
	timers()
	idlePool()
	var bothHoldOne sync.WaitGroup
	bothHoldOne.Add(2)
	go pay(&bothHoldOne)
	go ship(&bothHoldOne)
	await("sync.Mutex.Lock", 2)
}

//go:noinline
func leaveWithLock(ended *sync.WaitGroup) {
	accounts.Lock()
	ended.Done()
}

func abandoned() {
	var ended sync.WaitGroup
	ended.Add(1)
	go leaveWithLock(&ended)
	ended.Wait()
	addFollowers()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

//go:noinline
func follow() {
	accounts.Lock()
	accounts.Unlock()
}

// They wait for a lock whose owner waits for the outside: an idle program.
func addFollowers() {
	go follow()
	go follow()
	await("sync.Mutex.Lock", 2)
}

func lead(wait func()) {
	var leads sync.WaitGroup
	leads.Add(1)
	go func() {
		accounts.Lock()
		defer accounts.Unlock()
		leads.Done()
		wait()
	}()
	leads.Wait()
	addFollowers()
}

func leaderAccepts() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	lead(func() { listener.Accept() })
}

func leaderAwaitsSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	lead(func() { <-signals })
}

func leaderAwaitsWork() { lead(func() { <-work }) }

func leaderAwaitsHour() { lead(func() { time.Sleep(time.Hour) }) }

func leaderReads() {
	read, _, err := os.Pipe()
	check(err)
	lead(func() { read.Read(make([]byte, 1)) })
}

//go:noinline
func takeAccounts() { accounts.Lock() }

//go:noinline
func takeForCaller() { takeAccounts() }

// The leader's own function neither locks nor unlocks.
func leaderByHelper() {
	var leads sync.WaitGroup
	leads.Add(1)
	go func() {
		takeForCaller()
		leads.Done()
		time.Sleep(time.Hour)
		takeForCaller()
	}()
	leads.Wait()
	addFollowers()
}

// One goroutine locks, and another one unlocks when it has waited.
func lockHandedOver() {
	accounts.Lock()
	go func() {
		<-work
		accounts.Unlock()
	}()
	addFollowers()
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
	modes := map[string]func(){"abandoned": abandoned, "blocked_for_life": blockedForLife, "cycle_in_server": cycleInServer,
		"hot_mutex": hotMutex, "idle_pool": idlePool, "leader_accepts": leaderAccepts, "leader_awaits_hour": leaderAwaitsHour,
		"leader_awaits_signal": leaderAwaitsSignal, "leader_awaits_work": leaderAwaitsWork, "leader_by_helper": leaderByHelper,
		"leader_reads": leaderReads, "lock_handed_over": lockHandedOver,
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
