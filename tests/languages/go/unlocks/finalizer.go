//go:build finalizer

package main

import "runtime"

type lease struct{ number *int }

var held *lease

func init() { hold = start }

//go:noinline
func start() {
	accounts.Lock()
	held = &lease{new(int)}
	runtime.SetFinalizer(held, func(*lease) { accounts.Unlock() })
}
