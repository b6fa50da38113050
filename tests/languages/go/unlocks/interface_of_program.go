//go:build interface_of_program

package main

import "time"

type lease interface {
	Name() string
	Release()
}

type account struct{ name string }

func (a *account) Name() string { return a.name }

//go:noinline
func (a *account) Release() { accounts.Unlock() }

//go:noinline
func endLater(one lease) { time.AfterFunc(time.Hour, func() { one.Release() }) }

func init() { hold = start }

//go:noinline
func start() {
	accounts.Lock()
	endLater(&account{"mine"})
}
