//go:build timer_of_global

package main

import (
	"os"
	"time"
)

// Defers something else.
//
//go:noinline
func block() {
	file, err := os.Open("/dev/null")
	check(err)
	defer file.Close()
	accounts.Lock()
	time.AfterFunc(time.Hour, func() { accounts.Unlock() })
}

func init() { hold = start }

//go:noinline
func start() {
	block()
}
