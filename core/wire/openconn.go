package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// link is the TCP connection under a socket. It can be read without waiting. Under TLS it reads ahead, because TLS asks for
// one record at a time, and a client that sends its messages one by one puts each into a record of its own.
//
// Reading, and what says how, belong to the reader; everything else is as [net.TCPConn] has it.
type link struct {
	*net.TCPConn
	raw syscall.RawConn

	hasty bool // Read returns errNothing instead of waiting

	ahead      []byte // what was read ahead is in it; nil = nothing is read ahead
	start, end int    // of what was not taken yet
	taking     bool   // Read only takes what was read ahead

	idle   func() // called by readOrIdle; nil = that is not to be used
	idling bool   // it was

	// Arguments and results of try and tryOnce. They are fields so that they are not allocated for every read.
	try, tryOnce func(fd uintptr) (done bool)
	space        []byte
	n            int
	err          error
}

// nothing is the error of a Read that would have to wait: a timeout, after which TLS goes on where it was.
type nothing struct{}

func (nothing) Error() string   { return "nothing to read" }
func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true }

var errNothing net.Error = nothing{}

// What is read ahead at once: an idle connection holds the least.
const (
	leastAhead = 4 << 10
	mostAhead  = 64 << 10
)

// newLink returns the link of a connection. With ahead it is one to run TLS on.
func newLink(tcp *net.TCPConn, ahead bool) (*link, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	l := &link{TCPConn: tcp, raw: raw}
	l.try, l.tryOnce = l.tryRead, l.tryReadOrIdle
	if ahead {
		l.ahead = make([]byte, leastAhead)
	}
	return l, nil
}

// Read implements [net.Conn].
func (l *link) Read(p []byte) (int, error) {
	if l.ahead == nil {
		return l.receive(p)
	}
	if l.start == l.end {
		if l.taking {
			return 0, errNothing
		}
		if err := l.readAhead(); err != nil {
			return 0, err
		}
	}
	n := copy(p, l.ahead[l.start:l.end])
	l.start += n
	return n, nil
}

func (l *link) readAhead() error {
	if l.end == len(l.ahead) && l.end < mostAhead { // the last time there was more
		l.ahead = make([]byte, 2*len(l.ahead))
	}
	n, err := l.receive(l.ahead)
	l.start, l.end = 0, n
	return err
}

// relax gives back room that a connection which is idle now does not need.
func (l *link) relax() {
	if len(l.ahead) > leastAhead && l.start == l.end {
		l.ahead, l.start, l.end = make([]byte, leastAhead), 0, 0
	}
}

// receive reads what is there, and waits for something unless the link is hasty.
func (l *link) receive(p []byte) (int, error) {
	if !l.hasty {
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

func (l *link) tryRead(fd uintptr) (done bool) {
	for {
		l.n, l.err = readNow(fd, l.space)
		switch {
		case errors.Is(l.err, syscall.EINTR):
			continue
		case errors.Is(l.err, syscall.EAGAIN):
			l.n, l.err = 0, errNothing
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
func (l *link) readOrIdle(p []byte) (int, error) {
	l.space, l.idling = p, false
	err := l.raw.Read(l.tryOnce)
	l.space = nil
	switch {
	case err != nil:
		return 0, err
	case l.idling:
		return 0, nil
	case l.err != nil && l.err != io.EOF: //nolint:errorlint // it is what try has set
		return 0, &net.OpError{Op: "read", Net: "tcp", Source: l.LocalAddr(), Addr: l.RemoteAddr(), Err: l.err}
	}
	return l.n, l.err
}

func (l *link) tryReadOrIdle(fd uintptr) (done bool) {
	if l.idling {
		return true
	}
	l.tryRead(fd)
	if l.err != errNothing { //nolint:errorlint // as above
		return true
	}
	l.space, l.idling = nil, true
	l.idle()
	return false
}

// batch makes the system report bytes only when there are n of them: until then they wake nobody. With 1 they are reported
// as they come.
func (l *link) batch(n int) { _ = l.raw.Control(func(fd uintptr) { setLowWater(int(fd), n) }) }
