//go:build lock_of_condition

package main

import "sync"

var changed = sync.NewCond(&sync.Mutex{})

//go:noinline
func lead(leads chan int) {
	changed.L.Lock()
	leads <- 1
	<-work
	changed.L.Unlock()
}

//go:noinline
func change() {
	changed.L.Lock()
	changed.Broadcast()
	changed.L.Unlock()
}

func init() { hold = start }

//go:noinline
func start() {
	leads := make(chan int)
	go lead(leads)
	<-leads
	follow = change
}
