package crash

import (
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// gate is what clients see the broker through. Once it is shut, nothing that the broker says reaches them, as if it had been
// killed: what they know was so before.
type gate struct {
	isShut atomic.Bool

	mu   sync.Mutex // guards ends
	ends []func()   // each ends something that goes through
}

func (g *gate) shut() { g.isShut.Store(true) }

// cut shuts the gate, and ends all connections and requests through it.
func (g *gate) cut() {
	g.shut()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, end := range g.ends {
		end()
	}
	g.ends = nil
}

// enter has end called when the gate is cut, which it may be already.
func (g *gate) enter(end func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isShut.Load() {
		end()
		return
	}
	g.ends = append(g.ends, end)
}

func (g *gate) dial(network, address string) (net.Conn, error) {
	conn, err := amqp091.DefaultDial(process.Patience)(network, address)
	if err != nil {
		return nil, err
	}
	g.enter(func() { _ = conn.Close() }) // the client complains
	return &gated{conn, g}, nil
}

// gated is a connection through a gate.
type gated struct {
	net.Conn
	gate *gate
}

func (c *gated) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.gate.isShut.Load() {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}
