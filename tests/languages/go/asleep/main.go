// Its only goroutine comes to wait for ever, which the runtime notices. It knows nothing of stackd.
package main

import (
	"fmt"
	"os"
)

//go:noinline
func waitForNobody(values chan int) int { return <-values }

func main() {
	fmt.Println("ready")
	var buffer [1]byte
	os.Stdin.Read(buffer[:])
	waitForNobody(make(chan int))
}
