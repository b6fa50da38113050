//go:build go1.23 && linux && amd64

package stackd

import (
	"os"
	"runtime/debug"
	"syscall"
	"unsafe"
)

// What the runtime writes to standard error when it ends the program (an unrecovered panic, a fatal error) it writes to
// this file too. The file has no name and lives in memory. The daemon reads it when the process has ended. GOTRACEBACK
// says, as ever, which goroutines that text holds. A program that calls debug.SetCrashOutput itself keeps what it sets.
//
// It has room for as much as the daemon reads, and can never grow. The reason: a traceback of a million goroutines must not
// fill memory while the program ends. What the runtime writes beyond is lost there, and on standard error as ever; the
// goroutine that failed comes first.
const crashOutputMost = 1 << 20

func captureCrashOutput() *os.File {
	const sysMemfdCreate, closeOnExec, allowSealing = 319, 1, 2
	const addSeals, sealSeals, sealShrink, sealGrow = 1033, 1, 2, 4
	name := []byte("stackd-report\x00")
	fd, _, failed := syscall.Syscall(sysMemfdCreate, uintptr(unsafe.Pointer(&name[0])), closeOnExec|allowSealing, 0)
	if failed != 0 {
		return nil
	}
	file := os.NewFile(fd, "stackd-report")
	bounded := file.Truncate(crashOutputMost) == nil
	if bounded {
		_, _, failed = syscall.Syscall(syscall.SYS_FCNTL, fd, addSeals, sealSeals|sealShrink|sealGrow)
		bounded = failed == 0
	}
	if !bounded || debug.SetCrashOutput(file, debug.CrashOptions{}) != nil {
		file.Close()
		return nil
	}
	return file
}
