//go:build go1.23 && linux && amd64

package stackd

import (
	"os"
	"runtime/debug"
	"syscall"
	"unsafe"
)

// What the runtime writes to standard error when it ends the program (a panic that nobody recovered, a fatal error) it writes
// to this file too, which has no name and lives in memory. The daemon reads it when the process has ended. GOTRACEBACK says,
// as ever, which goroutines that text holds. A program that calls debug.SetCrashOutput itself keeps what it sets.
func captureCrashOutput() *os.File {
	const sysMemfdCreate, closeOnExec = 319, 1
	name := []byte("stackd-report\x00")
	fd, _, failed := syscall.Syscall(sysMemfdCreate, uintptr(unsafe.Pointer(&name[0])), closeOnExec, 0)
	if failed != 0 {
		return nil
	}
	file := os.NewFile(fd, "stackd-report")
	if debug.SetCrashOutput(file, debug.CrashOptions{}) != nil {
		file.Close()
		return nil
	}
	return file
}
