// A string and a number in every kind of place that a program of Go has for values; goroutines wait, and one runs.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	_ "stackd.example/go"
)

type keeper struct {
	text   string
	number uint64
	copies map[string][]any
}

var mutex sync.Mutex

//go:noinline
func (k *keeper) wait(text string, number uint64, begun *sync.WaitGroup) {
	var onStack [64]byte
	var numbers [8]uint64
	copy(onStack[:], text)
	for i := range numbers {
		numbers[i] = number
	}
	err := errors.New(text)
	defer func() { fmt.Println(onStack, numbers, err, recover()) }()
	begun.Done()
	mutex.Lock()
	panic(text)
}

//go:noinline
func spin(text string, number uint64, begun *sync.WaitGroup) {
	var onStack [64]byte
	copy(onStack[:], text)
	begun.Done()
	for x := number; ; x ^= number {
		if onStack[x%2] == 0 {
			fmt.Println(text, x)
		}
	}
}

func main() {
	in := bufio.NewReader(os.Stdin)
	text, _ := in.ReadString('\n')
	text = strings.TrimSpace(text)
	hex, _ := in.ReadString('\n')
	number, _ := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
	k := &keeper{text, number, map[string][]any{text: {number, []byte(text)}}}
	mutex.Lock()
	var begun sync.WaitGroup
	begun.Add(4)
	for i := 0; i < 3; i++ {
		go k.wait(text, number, &begun)
	}
	go spin(text, number, &begun)
	begun.Wait()
	fmt.Println("ready")
	in.ReadString('\n')
}
