// As tests/deploy/apps/app.py.
package main

import (
	"bufio"
	"fmt"
	"os"
	"sync"
	"time"

	_ "stackd.example/go"
)

var first, second sync.Mutex

//go:noinline
func standStill() { time.Sleep(10000 * time.Second) }

//go:noinline
func readAtNull(where *int) int { return *where }

func obey() {
	word, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if word == "crash\n" {
		readAtNull(nil)
	}
	select {}
}

func main() {
	go standStill()
	fmt.Println("ready")
	obey()
}
