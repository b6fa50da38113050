//go:build locker_held

package main

import (
	"sync"
	"time"
)

//go:noinline
func holdForAnHour(lock sync.Locker, holds *sync.WaitGroup) {
	lock.Lock()
	holds.Done()
	time.Sleep(time.Hour)
	lock.Unlock()
}

func init() { hold = start }

//go:noinline
func start() {
	var holds sync.WaitGroup
	holds.Add(1)
	go holdForAnHour(&accounts, &holds)
	holds.Wait()
}
