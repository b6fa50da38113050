// As many threads as told, each in a call of the system. If asked, one goroutine never gives way, at once or when a line
// comes.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	_ "stackd.example/go"
)

//go:noinline
func readNothing(fd int, begun *sync.WaitGroup) {
	runtime.LockOSThread()
	begun.Done()
	var buffer [1]byte
	syscall.Read(fd, buffer[:])
}

//go:noinline
func turn(x int) int {
	for ; ; x++ {
	}
}

//go:noinline
func spinDeep(n int) int {
	if n == 0 {
		return turn(n)
	}
	return spinDeep(n-1) + 1
}

func main() {
	count, _ := strconv.Atoi(os.Args[1])
	var pipe [2]int
	if err := syscall.Pipe(pipe[:]); err != nil {
		panic(err)
	}
	var begun sync.WaitGroup
	begun.Add(count)
	for i := 0; i < count; i++ {
		go readNothing(pipe[0], &begun)
	}
	begun.Wait()
	fmt.Println("ready")
	var buffer [1]byte
	if len(os.Args) > 2 {
		if os.Args[2] != "spin" {
			os.Stdin.Read(buffer[:])
			fmt.Println("told")
		}
		spinDeep(30)
	}
	os.Stdin.Read(buffer[:])
}
