//go:build context_ends

package main

import "context"

var endRequest context.CancelFunc

func init() { hold = start }

//go:noinline
func start() {
	request, end := context.WithCancel(context.Background())
	endRequest = end
	accounts.Lock()
	context.AfterFunc(request, func() { accounts.Unlock() })
}
