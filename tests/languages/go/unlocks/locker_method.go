//go:build locker_method

package main

import (
	"sync"
	"time"
)

//go:noinline
func holdForAnHour(lock sync.Locker) {
	lock.Lock()
	time.AfterFunc(time.Hour, lock.Unlock)
}

func init() { hold = start }

//go:noinline
func start() {
	holdForAnHour(&accounts)
}
