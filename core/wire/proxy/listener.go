package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Options say from which addresses headers are accepted.
type Options struct {
	Proxies []netip.Prefix // of IPv4 or IPv6, not of IPv4 in IPv6
	Timeout time.Duration  // from accepting a connection to the end of its header
	Most    int            // connections that may wait for their header at a time; a further one displaces the oldest. 0 = any number
	Key     string         // configuration key that lists the proxies, for the log
	Log     *slog.Logger
}

// Conn is a connection that a proxy forwards. Its addresses are those in the header, or its own if the header has none.
type Conn struct {
	*net.TCPConn
	Accepted      time.Time
	remote, local net.Addr
}

// RemoteAddr returns the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// LocalAddr returns the address that the client has connected to.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// Proxied reports whether a connection, perhaps under TLS, was forwarded by a proxy.
func Proxied(c net.Conn) bool {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	_, ok := c.(*Conn)
	return ok
}

// Listen returns a listener that accepts connections from proxies after their header has arrived, and other connections at once. Without
// proxies it returns l. It has goroutines until it is closed, and it owns l.
func Listen(l net.Listener, o Options) net.Listener {
	if len(o.Proxies) == 0 {
		return l
	}
	p := &listener{Listener: l, Options: o, ready: make(chan accepted), done: make(chan struct{})}
	p.running.Go(p.accept)
	return p
}

type listener struct {
	net.Listener
	Options
	ready   chan accepted
	done    chan struct{} // closed by Close
	running sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	waiting []net.Conn // for their header, the oldest first
	ended   bool
	refused int // refusals that were not logged yet
	logged  time.Time
}

type accepted struct {
	socket net.Conn
	err    error
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.ready:
		return a.socket, a.err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. It closes connections that have not been returned by Accept, and waits for the goroutines.
func (l *listener) Close() error {
	l.mu.Lock()
	if !l.ended {
		l.ended = true
		close(l.done)
	}
	for _, socket := range l.waiting {
		_ = socket.Close() // its goroutine notices
	}
	l.mu.Unlock()
	err := l.Listener.Close()
	l.running.Wait()
	return err
}

// accept accepts sockets until the listener is closed. It passes errors on to the caller of Accept, which waits before it asks again.
func (l *listener) accept() {
	for {
		socket, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		tcp, ok := socket.(*net.TCPConn)
		if ok && l.isProxy(tcp) {
			l.expect(tcp)
			continue
		}
		if !l.offer(accepted{socket, err}) {
			return
		}
	}
}

// isProxy reports whether a connection must begin with a header.
func (l *listener) isProxy(socket *net.TCPConn) bool {
	at, ok := socket.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return false
	}
	address := at.AddrPort().Addr().Unmap().WithZone("")
	return slices.ContainsFunc(l.Proxies, func(p netip.Prefix) bool { return p.Contains(address) })
}

// offer passes a result to a caller of Accept. If the listener is closed first, it closes the socket and returns false.
func (l *listener) offer(a accepted) bool {
	select {
	case l.ready <- a:
		return true
	case <-l.done:
		if a.socket != nil {
			_ = a.socket.Close()
		}
		return false
	}
}

// expect begins to wait for the header of a connection.
func (l *listener) expect(socket *net.TCPConn) {
	if !l.enter(socket) {
		_ = socket.Close()
		return
	}
	at := time.Now()
	l.running.Go(func() { l.introduce(socket, at) })
}

// introduce reads the header of a connection.
func (l *listener) introduce(socket *net.TCPConn, at time.Time) {
	_ = socket.SetReadDeadline(at.Add(l.Timeout)) // fails if it is closed, and so does the read
	h, err := Read(socket)
	crowdedOut := !l.leave(socket)
	if err == nil {
		err = socket.SetReadDeadline(time.Time{})
	}
	if err != nil {
		l.refuse(socket, err, crowdedOut)
		return
	}
	c := &Conn{TCPConn: socket, Accepted: at, remote: socket.RemoteAddr(), local: socket.LocalAddr()}
	if h.Source.IsValid() {
		c.remote, c.local = net.TCPAddrFromAddrPort(h.Source), net.TCPAddrFromAddrPort(h.Destination)
	}
	l.offer(accepted{socket: c})
}

// enter registers a connection that waits for its header. If there are too many, it displaces the oldest one.
func (l *listener) enter(socket net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	if l.Most > 0 && len(l.waiting) >= l.Most {
		_ = l.waiting[0].Close() // its goroutine notices
		l.waiting = slices.Delete(l.waiting, 0, 1)
	}
	l.waiting = append(l.waiting, socket)
	return true
}

// leave undoes enter. It reports whether the connection still had its place.
func (l *listener) leave(socket net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting, socket)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	return i >= 0
}

// logEvery is the shortest time between log lines about refused connections.
const logEvery = time.Second

// refuse closes a connection and logs why, unless the peer only checked whether the port is open.
func (l *listener) refuse(socket net.Conn, why error, crowdedOut bool) {
	_ = socket.Close()
	if errors.Is(why, io.EOF) {
		l.Log.Debug("closed before the PROXY header", "proxy", socket.RemoteAddr().String())
		return
	}
	if crowdedOut {
		why = errors.New("too many connections wait for their header")
	}
	l.mu.Lock()
	now := time.Now()
	l.refused++
	n := l.refused
	if l.ended || now.Sub(l.logged) < logEvery {
		l.mu.Unlock()
		return
	}
	l.refused, l.logged = 0, now
	l.mu.Unlock()
	log := l.Log.With("proxy", socket.RemoteAddr().String(), "reason", why, "key", l.Key)
	if n > 1 {
		log = log.With("not_told", n-1)
	}
	log.Warn("connection from a proxy refused")
}
