// A program whose author knows nothing of stackd, a module of its own: it is built with the package by an overlay.
package main

import (
	"fmt"
	"os"
)

//go:noinline
func waitForNobody(values chan int) int { return <-values }

func main() {
	go waitForNobody(make(chan int))
	fmt.Println("ready")
	var buffer [1]byte
	os.Stdin.Read(buffer[:])
}
