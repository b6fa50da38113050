// Many goroutines in one place, and one that never gives way if asked; by the stackd package it can be dumped. For each line it
// makes the runtime's own profile of them, which stops the world, and says how many milliseconds that took.
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
	for i := 2; i < len(os.Args); i++ {
		go spin()
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		begin := time.Now()
		pprof.Lookup("goroutine").WriteTo(io.Discard, 2)
		fmt.Println(time.Since(begin).Seconds() * 1e3)
	}
}
