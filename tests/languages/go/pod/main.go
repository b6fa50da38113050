// As tests/deploy/apps/app.py.
package main

import (
	"bufio"
	"fmt"
	"os"
	"sync"
	"time"

	stackd "stackd.example/go"
)

var first, second sync.Mutex

//go:noinline
func standStill() { time.Sleep(10000 * time.Second) }

//go:noinline
func readAtNull(where *int) int { return *where }

//go:noinline
func lockCrosswise(one, other *sync.Mutex, both *sync.WaitGroup) {
	one.Lock()
	both.Done()
	both.Wait()
	other.Lock()
}

func obey() {
	word, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if word == "crash\n" {
		readAtNull(nil)
	}
	if word == "hang\n" {
		stackd.NewHeartbeat("worker", time.Second).Beat()
		var both sync.WaitGroup
		both.Add(2)
		go lockCrosswise(&first, &second, &both)
		lockCrosswise(&second, &first, &both)
	}
	select {}
}

func main() {
	go standStill()
	fmt.Println("ready")
	obey()
}
