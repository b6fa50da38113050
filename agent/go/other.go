//go:build !(linux && amd64)

// Package stackd does nothing here: the daemon runs on Linux and reads x86-64.
package stackd

import (
	"errors"
	"time"
)

const Version = "0.1.0"

var ErrNotConnected = errors.New("stackd: no daemon is connected")

func SetProcessName(name string) {}
func NameThread(name string)     {}
func DumpNow() error             { return ErrNotConnected }

type Heartbeat struct{}

func NewHeartbeat(name string, limit time.Duration) *Heartbeat { return &Heartbeat{} }
func (h *Heartbeat) Beat()                                     {}
func (h *Heartbeat) Suspend()                                  {}
func (h *Heartbeat) Close()                                    {}
