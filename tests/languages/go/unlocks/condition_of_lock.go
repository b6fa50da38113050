//go:build condition_of_lock

package main

import "sync"

var changed = sync.NewCond(&accounts)

// Has the lock by another name than the others.
//
//go:noinline
func lead(leads chan int) {
	changed.L.Lock()
	leads <- 1
	<-work
	changed.L.Unlock()
}

func init() { hold = start }

//go:noinline
func start() {
	leads := make(chan int)
	go lead(leads)
	<-leads
}
