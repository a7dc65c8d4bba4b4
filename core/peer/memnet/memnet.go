// Package memnet is a network in memory for tests. Its connections can lose data and be reset; addresses can fall silent.
package memnet

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Network is the network. The zero value is ready.
type Network struct {
	mu        sync.Mutex // guards the rest
	listeners map[string]*listener
	silent    map[string]bool
	open      map[*end]bool
}

// end is one of the two ends of a connection.
type end struct {
	net.Conn
	network *Network
	address string       // address that was dialled
	lossy   *atomic.Bool // bytes written to either end are lost
	closed  atomic.Bool  // this end was closed
}

func (e *end) Write(p []byte) (int, error) {
	if e.lossy.Load() {
		return len(p), nil
	}
	written, err := e.Conn.Write(p)
	if e.ended(err) {
		err = syscall.EPIPE
	}
	return written, err
}

// ended reports whether an error means that the other end was closed. TCP has a separate
// error for that, and still accepts deadlines; a pipe fails as if this end had been closed.
func (e *end) ended(err error) bool { return errors.Is(err, io.ErrClosedPipe) && !e.closed.Load() }

func (e *end) SetDeadline(t time.Time) error      { return e.deadline(e.Conn.SetDeadline(t)) }
func (e *end) SetReadDeadline(t time.Time) error  { return e.deadline(e.Conn.SetReadDeadline(t)) }
func (e *end) SetWriteDeadline(t time.Time) error { return e.deadline(e.Conn.SetWriteDeadline(t)) }

func (e *end) deadline(err error) error {
	if e.ended(err) {
		return nil
	}
	return err
}

func (e *end) Close() error {
	e.closed.Store(true)
	e.network.mu.Lock()
	delete(e.network.open, e)
	e.network.mu.Unlock()
	return e.Conn.Close()
}

func (e *end) LocalAddr() net.Addr  { return addr(e.address) }
func (e *end) RemoteAddr() net.Addr { return addr(e.address) }

type listener struct {
	address string
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return addr(l.address) }

type addr string

func (addr) Network() string  { return "memory" }
func (a addr) String() string { return string(a) }

// Listen returns a listener at an address, in place of an older one.
func (n *Network) Listen(address string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &listener{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
	if n.listeners == nil {
		n.listeners, n.silent, n.open = map[string]*listener{}, map[string]bool{}, map[*end]bool{}
	}
	n.listeners[address] = l
	return l
}

// Dial connects to an address. Without a listener there, it is refused as over TCP.
func (n *Network) Dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	l, silent := n.listeners[address], n.silent[address]
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	switch {
	case silent:
		<-ctx.Done()
		return nil, ctx.Err()
	case l == nil:
		return nil, refused
	}
	a, b := net.Pipe()
	lossy := &atomic.Bool{}
	here, there := &end{Conn: a, network: n, address: address, lossy: lossy}, &end{Conn: b, network: n, address: address, lossy: lossy}
	select {
	case l.conns <- there:
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open[here], n.open[there] = true, true
	return here, nil
}

// Silence sets whether dialling an address gets no answer at all.
func (n *Network) Silence(address string, silent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent[address] = silent
}

// Lose drops all bytes that are written from now on to the open connections to an address, at either end.
func (n *Network) Lose(address string) {
	for _, e := range n.to(address) {
		e.lossy.Store(true)
	}
}

// Reset ends the open connections to an address.
func (n *Network) Reset(address string) {
	for _, e := range n.to(address) {
		e.Close()
	}
}

func (n *Network) to(address string) []*end {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []*end
	for e := range n.open {
		if e.address == address {
			all = append(all, e)
		}
	}
	return all
}
