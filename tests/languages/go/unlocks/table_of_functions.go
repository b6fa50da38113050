//go:build table_of_functions

package main

var steps = []func(){stop, resume}

//go:noinline
func stop() { accounts.Lock() }

//go:noinline
func resume() { accounts.Unlock() }

func init() { hold = start }

//go:noinline
func start() {
	stop()
	go func() { steps[<-work]() }()
}
