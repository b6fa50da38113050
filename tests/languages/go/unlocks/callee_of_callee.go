//go:build callee_of_callee

package main

//go:noinline
func release() { accounts.Unlock() }

//go:noinline
func finish() { release() }

//go:noinline
func end() { finish() }

func init() { hold = start }

//go:noinline
func start() {
	accounts.Lock()
	go func() {
		<-work
		end()
	}()
}
