//go:build connection

package main

import "net"

//go:noinline
func serve(connection net.Conn) {
	finish()
	connection.Close()
}

//go:noinline
func finish() { release() }

//go:noinline
func release() { accounts.Unlock() }

// Accepts connections. What it starts for one unlocks, and nothing that it calls.
func acceptAll(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		check(err)
		go serve(connection)
	}
}

func init() { hold = start }

//go:noinline
func start() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go acceptAll(listener)
	accounts.Lock()
}
