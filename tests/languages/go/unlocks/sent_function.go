//go:build sent_function

package main

import "time"

var ends = make(chan func(), 1)

func init() { hold = start }

//go:noinline
func start() {
	accounts.Lock()
	ends <- func() { accounts.Unlock() }
	go func() {
		time.Sleep(time.Hour)
		(<-ends)()
	}()
}
