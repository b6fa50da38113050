// Many goroutines in one place, and one that never gives way if asked; by the stackd package it can be dumped.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"

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
	var buffer [1]byte
	os.Stdin.Read(buffer[:])
}
