//go:build locker_closure

package main

import (
	"sync"
	"time"
)

//go:noinline
func holdForAnHour(lock sync.Locker) {
	lock.Lock()
	time.AfterFunc(time.Hour, func() { lock.Unlock() })
}

func init() { hold = start }

//go:noinline
func start() {
	holdForAnHour(&accounts)
}
