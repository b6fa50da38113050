//go:build reader

package main

import (
	"sync"
	"time"
)

var prices sync.RWMutex

//go:noinline
func change() {
	prices.Lock()
	prices.Unlock()
}

func init() { hold = start }

//go:noinline
func start() {
	prices.RLock()
	time.AfterFunc(time.Hour, prices.RUnlock)
	follow = change
}
