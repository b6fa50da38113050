//go:build map_of_functions

package main

import "os"

var commands = map[string]func(){}

func init() { hold = start }

//go:noinline
func start() {
	accounts.Lock()
	commands["resume"] = func() { accounts.Unlock() }
	go func() {
		name := make([]byte, 16)
		read, _, err := os.Pipe()
		check(err)
		length, _ := read.Read(name)
		commands[string(name[:length])]()
	}()
}
