package collect

import (
	"io"
	"net"
)

// forward passes the bytes of each connection on, both ways.
func forward(listener net.Listener, address string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", address)
		if err != nil {
			from.Close()
			continue
		}
		pass := func(to, from net.Conn) {
			io.Copy(to, from)
			to.Close()
			from.Close()
		}
		go pass(to, from)
		go pass(from, to)
	}
}
