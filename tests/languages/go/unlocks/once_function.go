//go:build once_function

package main

import "sync"

var release func()

func init() { hold = start }

//go:noinline
func start() {
	accounts.Lock()
	release = sync.OnceFunc(accounts.Unlock)
	go func() {
		<-work
		release()
	}()
}
