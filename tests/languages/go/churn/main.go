// Goroutines that come and go, call deep, block and are collected from, for as long as standard input is open.
package main

import (
	"fmt"
	"os"
	"runtime"
	"time"

	_ "stackd.example/go"
)

type tree struct{ left, right *tree }

//go:noinline
func churnTree(depth int) *tree {
	if depth == 0 {
		return &tree{}
	}
	return &tree{churnTree(depth - 1), churnTree(depth - 1)}
}

//go:noinline
func churnDeep(n int, values chan int) int {
	var room [64]byte
	if n == 0 {
		return <-values
	}
	return churnDeep(n-1, values) + int(room[n%64])
}

//go:noinline
func churnBriefly(values chan int, depth int) {
	go func() { values <- 1 }()
	churnDeep(depth, values)
}

func main() {
	for i := 0; i < 4; i++ {
		go func(i int) {
			for n := 0; ; n++ {
				values := make(chan int)
				churnBriefly(values, n%50)
				if n%100 == i {
					runtime.Gosched()
				}
			}
		}(i)
	}
	go func() {
		for {
			churnTree(12)
			time.Sleep(time.Millisecond)
		}
	}()
	fmt.Println("ready")
	var buffer [1]byte
	os.Stdin.Read(buffer[:])
}
