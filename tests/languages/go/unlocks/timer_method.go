//go:build timer_method

package main

import "time"

func init() { hold = start }

//go:noinline
func start() {
	accounts.Lock()
	time.AfterFunc(time.Hour, accounts.Unlock)
}
