//go:build linux && amd64

package stackd

import (
	"bytes"
	"encoding/binary"
	"os"
	"strconv"
	"syscall"
)

// The messages of agent/include/stackd/wire.h, which says what they mean.

const (
	abiVersion = 1

	messageHello       = 1
	messageWelcome     = 2
	messageOpenFile    = 4
	messageFile        = 5
	messageKick        = 6
	messageDumpRequest = 7
	messageName        = 8
	messageReportFile  = 12

	helloHasMemory = 1 << 0
	helloHasMaps   = 1 << 1
	helloHasFolder = 1 << 2
	helloNoHandler = 1 << 3
	helloGoroutine = 1 << 4
	helloHasStatus = 1 << 7

	// What of the memory the daemon may read.
	shareStacks = 1
	shareNames  = 2
	shareMemory = 3

	headerBytes   = 8
	pathBytes     = 1024
	placeBytes    = 2048
	openFileBytes = 16 + pathBytes
	welcomeBytes  = 16

	// Values of stackd.v1.Language.
	languageGo = 3
)

type message struct{ bytes.Buffer }

func newMessage(kind uint32) *message {
	m := &message{}
	m.number32(kind)
	m.number32(0)
	return m
}

func (m *message) number32(value uint32) { m.Write(binary.LittleEndian.AppendUint32(nil, value)) }
func (m *message) number64(value uint64) { m.Write(binary.LittleEndian.AppendUint64(nil, value)) }

// Cut to fit, with a NUL at the end.
func (m *message) text(value string, size int) {
	field := make([]byte, size)
	copy(field[:size-1], value)
	m.Write(field)
}

// With its size filled in.
func (m *message) finish() []byte {
	encoded := m.Bytes()
	binary.LittleEndian.PutUint32(encoded[4:], uint32(len(encoded)))
	return encoded
}

// Where the process runs: these variables, those that are set. One that does not fit is left out.
func (m *message) place() {
	left := placeBytes
	for _, name := range []string{"POD_NAME", "POD_NAMESPACE", "POD_UID", "NODE_NAME", "STACKD_CONTAINER_NAME",
		"STACKD_CONTAINER_IMAGE", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"} {
		entry := name + "=" + os.Getenv(name) + "\x00"
		if os.Getenv(name) == "" || len(entry) > left {
			continue
		}
		left -= len(entry)
		m.WriteString(entry)
	}
}

func helloMessage(flags uint32, name string, share uint32) []byte {
	hostname, _ := os.Hostname()
	executable, _ := os.Readlink("/proc/self/exe")
	signal := uint32(0)
	if questions != nil {
		flags |= helloGoroutine
		signal = dumpSignal
	} else {
		flags |= helloNoHandler
	}
	m := newMessage(messageHello)
	m.number32(abiVersion)
	m.number32(flags)
	m.number32(uint32(os.Getpid()))
	m.number32(uint32(os.Geteuid()))
	m.number64(startTicks())
	m.number32(signal)
	m.number32(share)
	m.text(hostname, 64)
	m.text(name, 64)
	m.text(os.Args[0], 256)
	m.text(executable, pathBytes)
	m.place()
	return m.finish()
}

// Field 22 of /proc/self/stat; what stands before the last parenthesis may hold anything.
func startTicks() uint64 {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0
	}
	ticks, _ := strconv.ParseUint(string(fields[19]), 10, 64)
	return ticks
}

func fileMessage(request uint32, err syscall.Errno) []byte {
	m := newMessage(messageFile)
	m.number32(request)
	m.number32(uint32(-int32(err)))
	return m.finish()
}

func dumpRequestMessage() []byte { return newMessage(messageDumpRequest).finish() }

func nameMessage(name string) []byte {
	m := newMessage(messageName)
	m.text(name, 64)
	return m.finish()
}

func reportFileMessage() []byte {
	m := newMessage(messageReportFile)
	m.number32(languageGo)
	m.number32(0)
	m.text("Go traceback", 64)
	return m.finish()
}
