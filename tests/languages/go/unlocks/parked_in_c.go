//go:build parked_in_c

package main

// #include <unistd.h>
import "C"

//go:noinline
func compute(holds chan int) {
	accounts.Lock()
	holds <- 1
	C.sleep(3600)
	accounts.Unlock()
}

func init() { hold = start }

//go:noinline
func start() {
	holds := make(chan int)
	go compute(holds)
	<-holds
}
