//go:build hung_helpers

package main

import (
	"net"
	"net/http"
	"sync"
)

type store struct {
	lock sync.Mutex
	sum  int
}

//go:noinline
func (s *store) begin() { s.lock.Lock() }

//go:noinline
func (s *store) end() { s.lock.Unlock() }

//go:noinline
func (s *store) add() {
	s.begin()
	s.sum++
	s.end()
}

// Asks for what it has.
//
//go:noinline
func (s *store) addTwice() {
	s.begin()
	s.add()
	s.end()
}

func init() { hold = start }

//go:noinline
func start() {
	one := new(store)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	http.HandleFunc("/add", func(http.ResponseWriter, *http.Request) { one.add() })
	http.HandleFunc("/twice", func(http.ResponseWriter, *http.Request) { one.addTwice() })
	go http.Serve(listener, nil)
	go http.Get("http://" + listener.Addr().String() + "/twice")
	followers = 0
	await(1)
}
