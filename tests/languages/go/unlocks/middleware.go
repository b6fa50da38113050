//go:build middleware

package main

import (
	"net"
	"net/http"
)

func oneAtATime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		accounts.Lock()
		defer accounts.Unlock()
		next.ServeHTTP(answer, request)
	})
}

func init() { hold = start }

// The first request waits for its backend, and the others for it.
//
//go:noinline
func start() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-work })
	go http.Serve(listener, oneAtATime(slow))
	for i := 0; i < 3; i++ {
		go http.Get("http://" + listener.Addr().String())
	}
	followers = 0
	await(2)
}
