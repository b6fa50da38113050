// Goroutines in every state that a hang has. Says "ready" when all are there. Writes what runtime.Stack says of them to the
// file named by -compare, while nothing moves. Then it collects garbage for each line that it reads, until there are no
// more.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	_ "stackd.example/go"
)

var (
	first, second sync.Mutex
	readWrite     sync.RWMutex
	group         sync.WaitGroup
	condition     = sync.NewCond(&sync.Mutex{})
	nothing       chan int
	sink          int
)

//go:noinline
func lockFirst() {
	first.Lock()
	time.Sleep(20 * time.Millisecond)
	second.Lock()
}

//go:noinline
func lockSecond() {
	second.Lock()
	time.Sleep(20 * time.Millisecond)
	first.Lock()
}

func receiveInlined(values chan int) int { return <-values }

func receiveTwiceInlined(values chan int) int { return receiveInlined(values) + 1 }

//go:noinline
func receive(values chan int) { sink += receiveTwiceInlined(values) }

//go:noinline
func send(values chan<- int) { values <- 1 }

//go:noinline
func choose(a, b chan int) {
	select {
	case <-a:
	case b <- 1:
	}
}

//go:noinline
func waitForGroup() { group.Wait() }

//go:noinline
func waitForCondition() {
	condition.L.Lock()
	condition.Wait()
}

//go:noinline
func waitForReader() { readWrite.Lock() }

//go:noinline
func sleepLong() { time.Sleep(time.Hour) }

//go:noinline
func accept(listener net.Listener) { listener.Accept() }

//go:noinline
func readPipe(fd int) {
	var buffer [1]byte
	syscall.Read(fd, buffer[:])
}

//go:noinline
func receiveNil() { <-nothing }

//go:noinline
func deep(n int, values chan int) int {
	if n == 0 {
		return <-values
	}
	return deep(n-1, values) + 1
}

type keeper[T any] struct{ value chan T }

//go:noinline
func (k *keeper[T]) take() T { return <-k.value }

type taker interface{ take() int }

//go:noinline
func throughInterface(t taker) { sink += t.take() }

//go:noinline
func panicking(values chan int) {
	defer func() {
		if recover() != nil {
			<-values
		}
	}()
	var where *int
	*where = 1
}

//go:noinline
func waitInDefer(values chan int) {
	defer func() { <-values }()
	var where *int
	*where = 1
}

//go:noinline
func spin() {
	for x := 0; ; x++ {
	}
}

func main() {
	compare := flag.String("compare", "", "file for what runtime.Stack says")
	spins := flag.Bool("spin", false, "one goroutine runs for ever")
	waiters := flag.Int("waiters", 3, "goroutines that wait in the same place")
	flag.Parse()
	values := make(chan int)
	readWrite.RLock()
	group.Add(1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	var pipe [2]int
	if err := syscall.Pipe(pipe[:]); err != nil {
		panic(err)
	}
	go lockFirst()
	go lockSecond()
	for i := 0; i < *waiters; i++ {
		go receive(values)
	}
	sends := make(chan int)
	go send(sends)
	go choose(make(chan int), make(chan int))
	go waitForGroup()
	go waitForCondition()
	go waitForReader()
	go sleepLong()
	go accept(listener)
	go readPipe(pipe[0])
	go receiveNil()
	go deep(60, values)
	go throughInterface(&keeper[int]{make(chan int)})
	go panicking(values)
	go waitInDefer(values)
	go func() { <-values }()
	time.AfterFunc(time.Hour, func() {})
	time.Sleep(300 * time.Millisecond)
	if *compare != "" {
		text := make([]byte, 64<<20)
		text = text[:runtime.Stack(text, true)]
		if err := os.WriteFile(*compare, text, 0o600); err != nil {
			panic(err)
		}
	}
	if *spins {
		go spin()
	}
	fmt.Println("ready")
	for line := make([]byte, 64); ; {
		if n, _ := os.Stdin.Read(line); n == 0 {
			return
		}
		runtime.GC()
		fmt.Println("collected")
	}
}
