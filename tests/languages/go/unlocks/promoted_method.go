//go:build promoted_method

package main

import (
	"sync"
	"time"
)

type store struct {
	name string
	sync.Mutex
}

//go:noinline
func (s *store) put() {
	s.Lock()
	s.Unlock()
}

func init() { hold = start }

//go:noinline
func start() {
	one := &store{name: "one"}
	one.Lock()
	time.AfterFunc(time.Hour, one.Unlock)
	follow = one.put
}
