package wire

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/curfewmq/curfew/core/wire/proxy"
)

// tcpConn is the TCP connection under a socket. It can be read without waiting. Under TLS it reads ahead, because TLS reads one
// record at a time, and clients that write each message separately put each into a record of its own.
//
// Read and the fields belong to the reader. The other methods are those of [net.TCPConn].
type tcpConn struct {
	*net.TCPConn
	raw syscall.RawConn

	forwarded *proxy.Conn // around TCPConn, if a proxy forwards the connection; it is never changed

	noWait bool // Read returns errWouldBlock instead of waiting

	buf          []byte // bytes that were read ahead; nil without TLS
	start, end   int    // of the bytes in buf that Read has not returned yet
	bufferedOnly bool   // Read returns only bytes that were read ahead

	onIdle   func() // called by readOrIdle; nil means that it must not be called
	wentIdle bool   // onIdle was called

	// Arguments and results of try and tryOnce. As variables they would be allocated for every read.
	try, tryOnce func(fd uintptr) (done bool)
	space        []byte
	n            int
	err          error
}

// wouldBlock is the error of a Read that would wait. It is a timeout, so that TLS continues with the next Read.
type wouldBlock struct{}

func (wouldBlock) Error() string   { return "nothing to read" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }

var errWouldBlock net.Error = wouldBlock{}

// Sizes of the read-ahead buffer. An idle connection has the smallest.
const (
	minReadAhead = 4 << 10
	maxReadAhead = 64 << 10
)

// newTCPConn wraps a connection. It reads ahead if forTLS is set.
func newTCPConn(tcp *net.TCPConn, forTLS bool) (*tcpConn, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	t := &tcpConn{TCPConn: tcp, raw: raw}
	t.try, t.tryOnce = t.tryRead, t.tryReadOrIdle
	if forTLS {
		t.buf = make([]byte, minReadAhead)
	}
	return t, nil
}

// tcpConnOf returns the TCP connection under a socket; nil = it has none.
func tcpConnOf(socket net.Conn) *tcpConn {
	if t, ok := socket.(*tls.Conn); ok {
		socket = t.NetConn()
	}
	t, _ := socket.(*tcpConn)
	return t
}

// RemoteAddr returns the client's address.
func (t *tcpConn) RemoteAddr() net.Addr {
	if t.forwarded != nil {
		return t.forwarded.RemoteAddr()
	}
	return t.TCPConn.RemoteAddr()
}

// LocalAddr returns the address that the client has connected to.
func (t *tcpConn) LocalAddr() net.Addr {
	if t.forwarded != nil {
		return t.forwarded.LocalAddr()
	}
	return t.TCPConn.LocalAddr()
}

func (t *tcpConn) Read(p []byte) (int, error) {
	if t.buf == nil {
		return t.receive(p)
	}
	if t.start == t.end {
		if t.bufferedOnly {
			return 0, errWouldBlock
		}
		if err := t.readAhead(); err != nil {
			return 0, err
		}
	}
	n := copy(p, t.buf[t.start:t.end])
	t.start += n
	return n, nil
}

func (t *tcpConn) readAhead() error {
	if t.end == len(t.buf) && t.end < maxReadAhead { // the last read filled it
		t.buf = make([]byte, 2*len(t.buf))
	}
	n, err := t.receive(t.buf)
	t.start, t.end = 0, n
	return err
}

// shrink replaces a large empty buffer by a small one.
func (t *tcpConn) shrink() {
	if len(t.buf) > minReadAhead && t.start == t.end {
		t.buf, t.start, t.end = make([]byte, minReadAhead), 0, 0
	}
}

// receive reads at least one byte, or returns errWouldBlock if noWait is set and there is none.
func (t *tcpConn) receive(p []byte) (int, error) {
	if !t.noWait {
		return t.TCPConn.Read(p)
	}
	t.space = p
	err := t.raw.Read(t.try)
	t.space = nil
	if err != nil {
		return 0, err
	}
	return t.n, t.err
}

func (t *tcpConn) tryRead(fd uintptr) (done bool) {
	for {
		t.n, t.err = readNow(fd, t.space)
		switch {
		case errors.Is(t.err, syscall.EINTR):
			continue
		case errors.Is(t.err, syscall.EAGAIN):
			t.n, t.err = 0, errWouldBlock
		case t.err != nil:
			t.n, t.err = 0, os.NewSyscallError("read", t.err)
		case t.n == 0:
			t.err = io.EOF
		}
		return true
	}
}

// readOrIdle reads the bytes that have arrived. If there are none, it calls onIdle, which may release p, and returns 0 as soon as bytes
// arrive.
func (t *tcpConn) readOrIdle(p []byte) (int, error) {
	t.space, t.wentIdle = p, false
	err := t.raw.Read(t.tryOnce)
	t.space = nil
	switch {
	case err != nil:
		return 0, err
	case t.wentIdle:
		return 0, nil
	case t.err != nil && t.err != io.EOF: //nolint:errorlint // tryRead sets it unwrapped
		return 0, &net.OpError{Op: "read", Net: "tcp", Source: t.LocalAddr(), Addr: t.RemoteAddr(), Err: t.err}
	}
	return t.n, t.err
}

func (t *tcpConn) tryReadOrIdle(fd uintptr) (done bool) {
	if t.wentIdle {
		return true
	}
	t.tryRead(fd)
	if t.err != errWouldBlock { //nolint:errorlint // as above
		return true
	}
	t.space, t.wentIdle = nil, true
	t.onIdle()
	return false
}

// setLowWater makes the system wake the reader only when there are n bytes to read.
func (t *tcpConn) setLowWater(n int) { _ = t.raw.Control(func(fd uintptr) { setLowWater(int(fd), n) }) }
