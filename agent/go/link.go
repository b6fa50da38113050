//go:build linux && amd64

package stackd

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	retryFirst = 100 * time.Millisecond
	// A program is back within two seconds of the daemon.
	retryMost = time.Second
)

// The one connection of this process to the daemon, again and again.
var link connection

type connection struct {
	report    *os.File // that the runtime writes its last words to; nil: none
	daemonUID string   // in decimal, "any" or ""; see checkListener
	shares    uint32   // what of the memory

	mutex  sync.Mutex
	name   string
	socket *os.File // nil: there is no daemon
}

// `socket`: what knock gave, or nil.
func (c *connection) run(path string, socket *os.File) {
	for retry := retryFirst; ; {
		if shared, err := c.enter(socket); err == nil {
			retry = retryFirst
			heartbeats.moveTo(shared.page)
			c.share(socket)
			c.serve(socket, shared.ring)
			c.share(nil)
			heartbeats.moveTo(nil)
			shared.ring.unmap()
		} else {
			time.Sleep(retry)
			retry = min2(2*retry, retryMost)
		}
		closeFile(socket)
		socket = c.knock(path, c.sayHello)
	}
}

// Beside the agent for native code, which has registered the process, or will: passes the file of the last words.
func (c *connection) accompany(path string, socket *os.File) {
	for retry := retryFirst; ; {
		if socket != nil {
			c.share(socket)
			// The daemon says nothing, and closes where it does not know the process.
			began := time.Now()
			receive(socket)
			c.share(nil)
			if time.Since(began) > retryMost {
				retry = retryFirst
			}
		}
		closeFile(socket)
		time.Sleep(retry)
		retry = min2(2*retry, retryMost)
		socket = c.knock(path, c.passReport)
	}
}

func (c *connection) passReport(socket *os.File) error {
	stat, err := os.Open("/proc/self/stat")
	if err != nil {
		return err
	}
	defer stat.Close()
	return send(socket, reportFileMessage(), c.report, stat)
}

func min2(a, b time.Duration) time.Duration {
	if a < b {
		return a
	}
	return b
}

func (c *connection) share(socket *os.File) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.socket = socket
	// It may have been given after what was said first.
	if socket != nil && c.name != "" {
		send(socket, nameMessage(c.name))
	}
}

func (c *connection) setName(name string) {
	c.mutex.Lock()
	c.name = name
	c.mutex.Unlock()
	c.send(nameMessage(name))
}

func (c *connection) send(encoded []byte) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.socket == nil {
		return ErrNotConnected
	}
	return send(c.socket, encoded)
}

// Memory that the daemon has too. Nil where it could not be mapped.
type sharedMemory struct {
	page []byte // of the heartbeats
	ring *ring
}

// Connects, and says what is to be said first. Does not wait for an answer: it is done before main begins. So a program
// that fails at once has said where its last words are. nil: there is no daemon.
func (c *connection) knock(path string, say func(socket *os.File) error) *os.File {
	socket, err := c.connect(path)
	if err != nil {
		return nil
	}
	// A new connection has room for a few messages, and the start of the program must not wait for more.
	socket.SetWriteDeadline(time.Now().Add(retryFirst))
	if say(socket) != nil {
		socket.Close()
		return nil
	}
	socket.SetWriteDeadline(time.Time{})
	return socket
}

// To the daemon that may be told of this process.
func (c *connection) connect(path string) (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	if err := c.checkListener(fd, path); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	// Not blocking, so that waiting for the daemon takes no thread.
	return os.NewFile(uintptr(fd), "stackd.sock"), nil
}

func closeFile(file *os.File) {
	if file != nil {
		file.Close()
	}
}

// Whether the listener may be taken for the daemon, which is handed this process's memory. Without a user that is named it is
// root, this process's own user, or the user to whom root gave the folder of the socket.
func (c *connection) checkListener(fd int, path string) error {
	if c.daemonUID == "any" {
		return nil
	}
	listener, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err != nil {
		return err
	}
	trusted := strconv.FormatUint(uint64(listener.Uid), 10) == c.daemonUID
	if c.daemonUID == "" {
		folder := filepath.Dir(path)
		trusted = listener.Uid == 0 || listener.Uid == uint32(os.Geteuid()) ||
			filepath.IsAbs(folder) && isAloneIn(folder, listener.Uid) &&
				(isAloneIn(filepath.Dir(folder), 0) || isAloneIn(filepath.Dir(folder), unmappedUID))
	}
	if !trusted {
		return syscall.EPERM
	}
	return nil
}

// Root of the host has this number too where a user namespace does not map it (/proc/sys/kernel/overflowuid).
const unmappedUID = 65534

// Whether the folder is the user's, and no other user may write to it.
func isAloneIn(folder string, uid uint32) bool {
	var status syscall.Stat_t
	return syscall.Stat(folder, &status) == nil && status.Mode&syscall.S_IFMT == syscall.S_IFDIR && status.Uid == uid &&
		status.Mode&0o022 == 0
}

// All of them, or nil.
func openAll(paths []string) []*os.File {
	var files []*os.File
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			closeFiles(files)
			return nil
		}
		files = append(files, file)
	}
	return files
}

func closeFiles(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}

func (c *connection) sayHello(socket *os.File) error {
	var flags uint32
	var files []*os.File
	pass := func(flag uint32, paths ...string) {
		opened := openAll(paths)
		if opened != nil {
			flags |= flag
			files = append(files, opened...)
		}
	}
	defer func() { closeFiles(files) }()
	if c.shares == shareMemory {
		pass(helloHasMemory, "/proc/self/mem")
	}
	pass(helloHasMaps, "/proc/self/maps")
	if c.shares == shareMemory {
		// Nothing in this process tells of its threads while they are in C.
		pass(helloHasFolder, "/proc/self")
	} else {
		pass(helloHasStatus, "/proc/self/stat", "/proc/self/status", "/proc/self/schedstat")
	}
	c.mutex.Lock()
	name := c.name
	c.mutex.Unlock()
	if err := send(socket, helloMessage(flags, name, c.shares), files...); err != nil {
		return err
	}
	if c.report != nil {
		return send(socket, reportFileMessage(), c.report)
	}
	return nil
}

// Awaits the daemon's answer.
func (c *connection) enter(socket *os.File) (*sharedMemory, error) {
	if socket == nil {
		return nil, ErrNotConnected
	}
	answer, fds, err := receive(socket)
	defer closeAll(fds)
	if err != nil {
		return nil, err
	}
	if kindOf(answer) != messageWelcome || len(answer) < welcomeBytes || len(fds) == 0 {
		return nil, errors.New("stackd: the daemon refused")
	}
	return &sharedMemory{mapHeartbeats(fds[0]), mapRing(fds[0], binary.LittleEndian.Uint32(answer[headerBytes:]))}, nil
}

// Until the daemon is gone.
func (c *connection) serve(socket *os.File, r *ring) {
	r.listen()
	for {
		request, fds, err := receive(socket)
		closeAll(fds)
		if err != nil {
			return
		}
		switch kind := kindOf(request); {
		case kind == messageOpenFile && len(request) >= openFileBytes:
			c.openFile(socket, request)
		case kind == messageKick:
			r.obey()
		}
	}
}

func (c *connection) openFile(socket *os.File, request []byte) {
	number := binary.LittleEndian.Uint32(request[headerBytes:])
	path := request[headerBytes+8 : openFileBytes]
	for i, b := range path {
		if b == 0 {
			path = path[:i]
			break
		}
	}
	fd, err := openMapped(string(path))
	if err != nil {
		code, _ := err.(syscall.Errno)
		send(socket, fileMessage(number, code))
		return
	}
	defer syscall.Close(fd)
	sendFds(socket, fileMessage(number, 0), []int{fd})
}

func kindOf(encoded []byte) uint32 {
	if len(encoded) < headerBytes || binary.LittleEndian.Uint32(encoded[4:]) != uint32(len(encoded)) {
		return 0
	}
	return binary.LittleEndian.Uint32(encoded)
}

func send(socket *os.File, encoded []byte, files ...*os.File) error {
	var fds []int
	for _, file := range files {
		// Fd() would make the file blocking; of files like these that changes nothing.
		fds = append(fds, int(file.Fd()))
	}
	return sendFds(socket, encoded, fds)
}

func sendFds(socket *os.File, encoded []byte, fds []int) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = syscall.UnixRights(fds...)
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		failed = syscall.Sendmsg(int(fd), encoded, rights, nil, syscall.MSG_NOSIGNAL)
		return failed != syscall.EAGAIN
	})
	if err != nil {
		return err
	}
	return failed
}

func receive(socket *os.File) ([]byte, []int, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	encoded := make([]byte, 2048)
	control := make([]byte, syscall.CmsgSpace(4*8))
	var count, controlCount int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		count, controlCount, _, _, failed = syscall.Recvmsg(int(fd), encoded, control, syscall.MSG_CMSG_CLOEXEC)
		return failed != syscall.EAGAIN
	})
	if err == nil {
		err = failed
	}
	if err == nil && count == 0 {
		err = os.ErrClosed
	}
	if err != nil {
		return nil, nil, err
	}
	var fds []int
	parts, _ := syscall.ParseSocketControlMessage(control[:controlCount])
	for i := range parts {
		received, _ := syscall.ParseUnixRights(&parts[i])
		fds = append(fds, received...)
	}
	return encoded[:count], fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		syscall.Close(fd)
	}
}
