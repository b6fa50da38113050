//go:build hung_defers

package main

import (
	"sync"
	"time"
)

var orders sync.Mutex

type ledger struct {
	lock sync.Mutex
	sum  int
}

//go:noinline
func (l *ledger) add() {
	l.lock.Lock()
	defer func() {
		l.sum++
		l.lock.Unlock()
	}()
	go func() {
		l.lock.Lock()
		defer l.lock.Unlock()
	}()
}

//go:noinline
func pay(bothHoldOne *sync.WaitGroup) {
	accounts.Lock()
	defer func() { accounts.Unlock() }()
	bothHoldOne.Done()
	bothHoldOne.Wait()
	orders.Lock()
	defer orders.Unlock()
}

//go:noinline
func ship(bothHoldOne *sync.WaitGroup) {
	orders.Lock()
	defer func() { orders.Unlock() }()
	bothHoldOne.Done()
	bothHoldOne.Wait()
	accounts.Lock()
	defer accounts.Unlock()
}

func init() { hold = start }

//go:noinline
func start() {
	one := new(ledger)
	one.add()
	time.AfterFunc(time.Hour, one.add)
	var bothHoldOne sync.WaitGroup
	bothHoldOne.Add(2)
	go pay(&bothHoldOne)
	go ship(&bothHoldOne)
	followers = 0
	await(2)
}
