//go:build linux && amd64

package stackd

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// A mapping with code, of a file.
type mappedCode struct {
	start, fileOffset int64
	device, inode     uint64
}

// Opens the file for reading: one of which code is mapped under this path now, or the executable. The daemon gets no other.
func openMapped(path string) (int, error) {
	flags := syscall.O_RDONLY | syscall.O_CLOEXEC | syscall.O_NONBLOCK | syscall.O_NOCTTY
	var code *mappedCode
	if path != "/proc/self/exe" {
		if code = findCode(path); code == nil {
			return -1, syscall.EPERM
		}
		flags |= syscall.O_NOFOLLOW
	}
	fd, err := syscall.Open(path, flags, 0)
	if err != nil {
		return -1, err
	}
	var status syscall.Stat_t
	mayBeHad := syscall.Fstat(fd, &status) == nil && status.Mode&syscall.S_IFMT == syscall.S_IFREG &&
		(code == nil || code.isOf(fd, &status))
	if !mayBeHad {
		syscall.Close(fd)
		return -1, syscall.EPERM
	}
	return fd, nil
}

func findCode(path string) *mappedCode {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		// start-end perms offset major:minor inode path
		fields := strings.SplitN(lines.Text(), " ", 6)
		if len(fields) < 6 || fields[1][2] != 'x' || strings.TrimLeft(fields[5], " ") != path {
			continue
		}
		start, _ := strconv.ParseInt(strings.SplitN(fields[0], "-", 2)[0], 16, 64)
		offset, _ := strconv.ParseInt(fields[2], 16, 64)
		inode, _ := strconv.ParseUint(fields[4], 10, 64)
		if inode != 0 {
			return &mappedCode{start, offset, deviceNumber(fields[3]), inode}
		}
	}
	return nil
}

// As struct stat has it, from the "fd:01" of maps.
func deviceNumber(text string) uint64 {
	parts := strings.SplitN(text, ":", 2)
	if len(parts) < 2 {
		return 0
	}
	major, _ := strconv.ParseUint(parts[0], 16, 32)
	minor, _ := strconv.ParseUint(parts[1], 16, 32)
	return (major&0xfffff000)<<32 | (major&0xfff)<<8 | (minor&0xffffff00)<<12 | minor&0xff
}

// maps shows other numbers than fstat of files of overlay file systems, and of btrfs. Their code must be the same.
func (c *mappedCode) isOf(fd int, status *syscall.Stat_t) bool {
	if status.Dev == c.device && status.Ino == c.inode {
		return true
	}
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return false
	}
	defer memory.Close()
	inFile, inMemory := make([]byte, 4096), make([]byte, 4096)
	count, err := syscall.Pread(fd, inFile, c.fileOffset)
	if err != nil || count <= 0 {
		return false
	}
	if _, err = memory.ReadAt(inMemory[:count], c.start); err != nil {
		return false
	}
	return bytes.Equal(inFile[:count], inMemory[:count])
}
