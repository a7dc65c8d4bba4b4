package broker

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/wlog"
)

// arrivals is a listener for connections that other nodes have opened. It implements [net.Listener].
type arrivals struct {
	conns  chan net.Conn
	closed chan struct{}
	once   atomic.Bool

	mu   sync.Mutex // guards open
	open map[*arrival]struct{}
}

// arrival is a connection of another node.
type arrival struct {
	net.Conn
	in   *arrivals
	from wlog.NodeID
}

func (a *arrivals) add(conn net.Conn, from wlog.NodeID) {
	c := &arrival{conn, a, from}
	a.mu.Lock()
	a.open[c] = struct{}{}
	a.mu.Unlock()
	select {
	case a.conns <- c:
	case <-a.closed:
		_ = c.Close()
	}
}

func (c *arrival) Close() error {
	c.in.mu.Lock()
	delete(c.in.open, c)
	c.in.mu.Unlock()
	return c.Conn.Close()
}

// hangUp closes the connections of a node.
func (a *arrivals) hangUp(node wlog.NodeID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.open {
		if c.from == node {
			_ = c.Conn.Close() // the server notices that, and calls Close
		}
	}
}

func (a *arrivals) Accept() (net.Conn, error) {
	select {
	case c := <-a.conns:
		return c, nil
	case <-a.closed:
		return nil, net.ErrClosed
	}
}

func (a *arrivals) Close() error {
	if a.once.CompareAndSwap(false, true) {
		close(a.closed)
	}
	return nil
}

func (a *arrivals) Addr() net.Addr { return &net.TCPAddr{} }
