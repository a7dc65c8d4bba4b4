package wire

import (
	"crypto/tls"
	"net"
	"syscall"
)

// errKept is the error of a connection that was closed because of its file descriptor.
var errKept = kept{}

type kept struct{}

func (kept) Error() string {
	return "too many open files: the last file descriptors are kept for logs and for other nodes"
}

// Timeout and Temporary make an HTTP server accept again after a while.
func (kept) Timeout() bool   { return false }
func (kept) Temporary() bool { return true }

// sparing is a listener that keeps file descriptors free for other uses: it closes connections whose descriptor is not below most. The system
// always assigns the lowest free number, so all lower ones are in use then. most 0 closes no connection.
type sparing struct {
	net.Listener
	most int
}

func (l sparing) Accept() (net.Conn, error) {
	socket, err := l.Listener.Accept()
	if err != nil || !isKept(socket, l.most) {
		return socket, err
	}
	socket.Close()
	return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: errKept}
}

// isKept reports whether the descriptor of a connection is not for clients. Clients may use those below most; 0 = all.
func isKept(socket net.Conn, most int) bool { return most > 0 && descriptorOf(socket) >= most }

// descriptorOf returns the file descriptor of a connection; -1 if it has none.
func descriptorOf(socket net.Conn) int {
	if secure, ok := socket.(*tls.Conn); ok {
		socket = secure.NetConn()
	}
	has, ok := socket.(syscall.Conn)
	if !ok {
		return -1
	}
	number := -1
	if raw, err := has.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { number = int(fd) }) // a closed connection has none
	}
	return number
}
