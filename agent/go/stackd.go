//go:build linux && amd64

// Package stackd lets the stackd daemon see what the goroutines of this process do: on request, in a hang, and when the
// program crashes. Importing it is enough:
//
//	import _ "stackd.example/go"
//
// It needs no cgo, calls nothing of the runtime that stops the program, and answers nothing itself. It passes the daemon
// what it needs to read this process's memory. So a dump shows a program whose goroutines cannot run any more, too.
//
// STACKD_DISABLE=1 in the environment turns it off. STACKD_DIR is the daemon's folder, /run/stackd if it is not set;
// STACKD_NAME is the name that the process has in the daemon. Where STACKD_DAEMON_UID is set, only that user is taken for
// the daemon, or with "any" each listener. Where it is not it is root, the process's own user, or the one to whom root gave
// the folder.
package stackd

import (
	"bytes"
	"errors"
	"os"
	"syscall"
	"unsafe"
)

// Version is that of the daemon it was made with.
const Version = "0.1.0"

// ErrNotConnected is what DumpNow says while there is no daemon.
var ErrNotConnected = errors.New("stackd: no daemon is connected")

func init() {
	daemonUID := os.Getenv("STACKD_DAEMON_UID")
	share, makesSense := shareOf(os.Getenv("STACKD_SHARE"), daemonUID)
	if disabled() || !makesSense {
		return
	}
	link.shares = share
	link.report = captureCrashOutput()
	link.daemonUID = daemonUID
	path := socketPath()
	if hasNativeAgent() {
		if link.report != nil {
			go link.accompany(path, link.knock(path, link.passReport))
		}
		return
	}
	link.name = os.Getenv("STACKD_NAME")
	installHandler()
	go link.run(path, link.knock(path, link.sayHello))
}

func disabled() bool {
	value := os.Getenv("STACKD_DISABLE")
	return value != "" && value != "0"
}

// What STACKD_SHARE lets the daemon read. Not set: all of the memory, which goroutines lie in; but where any listener is the
// daemon, none that was not meant gets it.
func shareOf(value, daemonUID string) (uint32, bool) {
	if value == "" && daemonUID == "any" {
		return shareNames, true
	}
	switch value {
	case "stacks":
		return shareStacks, true
	case "names":
		return shareNames, true
	case "memory", "":
		return shareMemory, true
	}
	return 0, false
}

// A program with cgo may run under the agent for native code, which sees all that this package would, and threads besides.
// The exception is the panic that ends the program, since Go ends a process without libc.
func hasNativeAgent() bool {
	maps, err := os.ReadFile("/proc/self/maps")
	return err == nil && bytes.Contains(maps, []byte("/libstackd_agent.so"))
}

func socketPath() string {
	dir := os.Getenv("STACKD_DIR")
	if dir == "" {
		dir = "/run/stackd"
	}
	return dir + "/stackd.sock"
}

// SetProcessName gives the process another name in the daemon.
func SetProcessName(name string) { link.setName(name) }

// NameThread names the thread that runs the calling goroutine, which has called runtime.LockOSThread.
func NameThread(name string) {
	const prSetName = 15
	text := make([]byte, 16)
	copy(text[:15], name)
	syscall.RawSyscall(syscall.SYS_PRCTL, prSetName, uintptr(unsafe.Pointer(&text[0])), 0)
}

// DumpNow asks the daemon for a dump of this process and does not wait for it.
func DumpNow() error { return link.send(dumpRequestMessage()) }
