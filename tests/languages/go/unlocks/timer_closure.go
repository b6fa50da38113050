//go:build timer_closure

package main

import (
	"sync"
	"time"
)

type account struct {
	name string
	lock sync.Mutex
}

//go:noinline
func (a *account) block() {
	a.lock.Lock()
	time.AfterFunc(time.Hour, func() { a.lock.Unlock() })
}

//go:noinline
func (a *account) pay() {
	a.lock.Lock()
	defer a.lock.Unlock()
}

func init() { hold = start }

//go:noinline
func start() {
	mine := &account{name: "mine"}
	mine.block()
	follow = mine.pay
}
