// Many goroutines in one place; by the stackd package it can be dumped. With a second argument, the first line on stdin has one
// more begin, which never gives way. For each other line it makes the runtime's own profile of them, which stops the world, and
// says how many milliseconds that took.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"strconv"
	"sync"
	"time"

	_ "stackd.example/go"
)

var mutex sync.Mutex

//go:noinline
func waitForMutex(begun *sync.WaitGroup) {
	begun.Done()
	mutex.Lock()
}

//go:noinline
func spin() {
	for x := 0; ; x++ {
	}
}

func main() {
	count, _ := strconv.Atoi(os.Args[1])
	mutex.Lock()
	var begun sync.WaitGroup
	begun.Add(count)
	for i := 0; i < count; i++ {
		go waitForMutex(&begun)
	}
	begun.Wait()
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	if len(os.Args) > 2 && lines.Scan() {
		go spin()
		fmt.Println("spins")
	}
	for lines.Scan() {
		begin := time.Now()
		pprof.Lookup("goroutine").WriteTo(io.Discard, 2)
		fmt.Println(time.Since(begin).Seconds() * 1e3)
	}
}
