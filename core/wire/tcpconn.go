package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// tcpConn is the TCP connection under a socket. It can be read without waiting. Under TLS it reads ahead, because TLS asks for
// one record at a time, and a client that sends its messages one by one puts each into a record of its own.
//
// Reading, and what says how, belong to the reader; everything else is as [net.TCPConn] has it.
type tcpConn struct {
	*net.TCPConn
	raw syscall.RawConn

	noWait bool // Read returns errNothing instead of waiting

	buf          []byte // what was read ahead is in it; nil = nothing is read ahead
	start, end   int    // of what was not taken yet
	bufferedOnly bool   // Read only takes what was read ahead

	onIdle   func() // called by readOrIdle; nil = that is not to be used
	wentIdle bool   // it was

	// Arguments and results of try and tryOnce. They are fields so that they are not allocated for every read.
	try, tryOnce func(fd uintptr) (done bool)
	space        []byte
	n            int
	err          error
}

// wouldBlock is the error of a Read that would have to wait: a timeout, after which TLS goes on where it was.
type wouldBlock struct{}

func (wouldBlock) Error() string   { return "nothing to read" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }

var errWouldBlock net.Error = wouldBlock{}

// What is read ahead at once: an idle connection holds the least.
const (
	leastAhead = 4 << 10
	mostAhead  = 64 << 10
)

// newTCPConn returns the link of a connection. With ahead it is one to run TLS on.
func newTCPConn(tcp *net.TCPConn, ahead bool) (*tcpConn, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	l := &tcpConn{TCPConn: tcp, raw: raw}
	l.try, l.tryOnce = l.tryRead, l.tryReadOrIdle
	if ahead {
		l.buf = make([]byte, leastAhead)
	}
	return l, nil
}

// Read implements [net.Conn].
func (l *tcpConn) Read(p []byte) (int, error) {
	if l.buf == nil {
		return l.receive(p)
	}
	if l.start == l.end {
		if l.bufferedOnly {
			return 0, errWouldBlock
		}
		if err := l.readAhead(); err != nil {
			return 0, err
		}
	}
	n := copy(p, l.buf[l.start:l.end])
	l.start += n
	return n, nil
}

func (l *tcpConn) readAhead() error {
	if l.end == len(l.buf) && l.end < mostAhead { // the last time there was more
		l.buf = make([]byte, 2*len(l.buf))
	}
	n, err := l.receive(l.buf)
	l.start, l.end = 0, n
	return err
}

// shrink gives back room that a connection which is idle now does not need.
func (l *tcpConn) shrink() {
	if len(l.buf) > leastAhead && l.start == l.end {
		l.buf, l.start, l.end = make([]byte, leastAhead), 0, 0
	}
}

// receive reads what is there, and waits for something unless the link is hasty.
func (l *tcpConn) receive(p []byte) (int, error) {
	if !l.noWait {
		return l.TCPConn.Read(p)
	}
	l.space = p
	err := l.raw.Read(l.try)
	l.space = nil
	if err != nil {
		return 0, err
	}
	return l.n, l.err
}

func (l *tcpConn) tryRead(fd uintptr) (done bool) {
	for {
		l.n, l.err = readNow(fd, l.space)
		switch {
		case errors.Is(l.err, syscall.EINTR):
			continue
		case errors.Is(l.err, syscall.EAGAIN):
			l.n, l.err = 0, errWouldBlock
		case l.err != nil:
			l.n, l.err = 0, os.NewSyscallError("read", l.err)
		case l.n == 0:
			l.err = io.EOF
		}
		return true
	}
}

// readOrIdle reads what is there. If there is nothing, it calls idle, which may take p back, and returns 0 as soon as there is
// something.
func (l *tcpConn) readOrIdle(p []byte) (int, error) {
	l.space, l.wentIdle = p, false
	err := l.raw.Read(l.tryOnce)
	l.space = nil
	switch {
	case err != nil:
		return 0, err
	case l.wentIdle:
		return 0, nil
	case l.err != nil && l.err != io.EOF: //nolint:errorlint // it is what try has set
		return 0, &net.OpError{Op: "read", Net: "tcp", Source: l.LocalAddr(), Addr: l.RemoteAddr(), Err: l.err}
	}
	return l.n, l.err
}

func (l *tcpConn) tryReadOrIdle(fd uintptr) (done bool) {
	if l.wentIdle {
		return true
	}
	l.tryRead(fd)
	if l.err != errWouldBlock { //nolint:errorlint // as above
		return true
	}
	l.space, l.wentIdle = nil, true
	l.onIdle()
	return false
}

// setLowWater makes the system report bytes only when there are n of them: until then they wake nobody. With 1 they are reported
// as they come.
func (l *tcpConn) setLowWater(n int) { _ = l.raw.Control(func(fd uintptr) { setLowWater(int(fd), n) }) }
