package power

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/sdk/hook"
)

// client is a connection without a socket: it feeds frames to a session, as package wire would, and reads what it says. All of it but
// busy belongs to the driver.
type client struct {
	b      *broker
	number int
	conn   *session.Conn
	writer session.Writer

	chunks [][]byte // to be fed, one at a time
	out    []byte   // what was said and not yet taken apart
	tick   atomic.Bool
	inbox  []event            // read, and not yet heard
	ahead  []event            // of those that are heard now
	heard  hook.Instant       // when all was heard
	late   <-chan struct{}    // closed when the disk has caught up with it
	closed *amqp.ChannelClose // why the broker closed the channel it publishes on; nil while it is open

	mu   sync.Mutex // guards what follows
	busy bool       // somebody feeds the session
	rest []byte     // what it has left over

	content partial
}

// partial is a message that has not come to its end.
type partial struct {
	channel uint16
	method  amqp.Method
	header  amqp.ContentHeader
	body    []byte
}

// event is a method that the broker has sent, and the content that came with it.
type event struct {
	channel uint16
	method  amqp.Method
	props   amqp.Properties
	body    []byte
}

func (b *broker) connect(number int) *client {
	c := &client{b: b, number: number}
	c.conn = b.server.Accept(session.Peer{Address: fmt.Sprint("127.0.0.1:", 10_000+number), Loopback: true}, func() { c.tick.Store(true) })
	c.writer = c.conn.Writer()
	b.clients = append(b.clients, c)
	c.chunk([]byte(amqp.ProtocolHeader))
	c.say(0, &amqp.ConnectionStartOK{
		ClientProperties: amqp.Table{{Key: "capabilities", Value: amqp.Table{{Key: "basic.nack", Value: true}, {Key: "consumer_cancel_notify", Value: true}}}},
		Mechanism:        "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US",
	})
	c.say(0, &amqp.ConnectionTuneOK{ChannelMax: 2047, FrameMax: 131072})
	c.say(0, &amqp.ConnectionOpen{VirtualHost: "/"})
	return c
}

// chunk has bytes fed as one read.
func (c *client) chunk(b []byte) { c.chunks = append(c.chunks, b) }

// say has methods fed as one read.
func (c *client) say(channel uint16, ms ...amqp.Method) {
	var b []byte
	for _, m := range ms {
		b = amqp.AppendMethod(b, channel, m)
	}
	c.chunk(b)
}

// idle reports that all it said was taken.
func (c *client) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.busy && len(c.chunks) == 0 && len(c.rest) == 0
}

// pump feeds the next chunk if the session may be fed.
func (c *client) pump() (fed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy || c.b.over {
		return false
	}
	ticks := c.tick.Swap(false)
	data := c.rest
	if c.ready() && len(c.chunks) > 0 {
		data = append(data, c.chunks[0]...)
		c.chunks = c.chunks[1:]
	}
	if !c.ready() || !ticks && len(data) == 0 {
		c.tick.Store(ticks)
		return false
	}
	c.busy = true
	go c.feed(data, ticks)
	return true
}

// ready reports whether the session may be read from: neither its client's laziness nor the disk forbids it.
func (c *client) ready() bool {
	if c.conn.Congested() {
		return false
	}
	if c.late == nil {
		return true
	}
	select {
	case <-c.late:
		c.late = nil
		return true
	default:
		return false
	}
}

// feed is the goroutine that reads the connection.
func (c *client) feed(data []byte, ticks bool) {
	now := c.b.clock()
	if ticks {
		c.conn.Tick(now)
	}
	n := 0
	if len(data) > 0 {
		k := block.New(len(data))
		n = c.conn.Feed(now, k, k.Buf[:copy(k.Buf, data)])
		k.Release()
	}
	if login := c.conn.Login(); login != nil {
		login(context.Background())
		c.conn.Tick(now)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = c.conn.LogCaughtUp()
	if c.conn.Published() {
		if full := c.b.store.Full(); full != nil {
			c.late = full
		}
	}
	c.busy, c.rest = false, append([]byte(nil), data[n:]...)
}

// closing reports whether the broker has closed a channel, which the client has not heard yet.
func (c *client) closing(ch uint16) bool {
	c.inbox = append(c.inbox, c.read()...)
	return slices.ContainsFunc(slices.Concat(c.ahead, c.inbox), func(e event) bool {
		_, closed := e.method.(*amqp.ChannelClose)
		return closed && e.channel == ch
	})
}

// hear takes what the client was sent.
func (c *client) hear() []event {
	all := append(c.inbox, c.read()...)
	c.inbox = nil
	return all
}

// read takes what the session has to say, and wakes those who waited for room, as the goroutine that writes the connection does.
func (c *client) read() (events []event) {
	for {
		b, waiting, _ := c.writer.Next()
		for _, w := range waiting {
			w.Wake()
		}
		if len(b) == 0 {
			break
		}
		c.out = append(c.out, slices.Concat(b...)...)
	}
	for {
		f, n, err := amqp.NextFrame(c.out, 1<<20)
		if err != nil {
			panic(err)
		}
		if n == 0 {
			return events
		}
		if e, complete := c.frame(f); complete {
			events = append(events, e)
		}
		c.out = c.out[n:]
	}
}

// frame takes a frame apart.
func (c *client) frame(f amqp.Frame) (e event, complete bool) {
	p := &c.content
	switch f.Type {
	case amqp.FrameMethod:
		m, err := amqp.ParseMethod(f.Payload)
		if err != nil {
			panic(err)
		}
		switch m.(type) {
		case *amqp.BasicDeliver, *amqp.BasicGetOK, *amqp.BasicReturn:
			*p = partial{channel: f.Channel, method: m}
			return event{}, false
		}
		return event{channel: f.Channel, method: m}, true
	case amqp.FrameHeader:
		h, err := amqp.ParseContentHeader(f.Payload)
		if err != nil {
			panic(err)
		}
		h.Props = append([]byte(nil), h.Props...)
		p.header = h
	case amqp.FrameBody:
		p.body = append(p.body, f.Payload...)
	default:
		return event{}, false // a heartbeat
	}
	if uint64(len(p.body)) < p.header.BodySize {
		return event{}, false
	}
	props, err := amqp.ParseProperties(p.header.Props)
	if err != nil {
		panic(err)
	}
	return event{p.channel, p.method, props, p.body}, true
}

// leave ends the connection without a word.
func (c *client) leave(now hook.Instant) { c.conn.Release(now) }
