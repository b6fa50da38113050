//go:build handler

package main

import (
	"net"
	"net/http"
)

func init() { hold = start }

//go:noinline
func start() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	http.HandleFunc("/stop", func(http.ResponseWriter, *http.Request) { accounts.Lock() })
	http.HandleFunc("/resume", func(http.ResponseWriter, *http.Request) { accounts.Unlock() })
	go http.Serve(listener, nil)
	answer, err := http.Get("http://" + listener.Addr().String() + "/stop")
	check(err)
	answer.Body.Close()
}
