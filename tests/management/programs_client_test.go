package management

import (
	"fmt"
	"net"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/tests/process"
)

// programClient is a connection, which is opened when it is needed.
type programClient struct {
	player   *programPlayer
	name     string
	conn     net.Conn
	events   chan programEvent // closed when the connection ends
	channels [3]*programChannel
	said     []string // about the connection
}

// programEvent is a method that a client heard, with its content.
type programEvent struct {
	channel uint16
	method  amqp.Method
	body    string
}

func (c *programClient) send(channel uint16, ms ...amqp.Method) {
	var b []byte
	for _, m := range ms {
		b = amqp.AppendMethod(b, channel, m)
	}
	c.write(b)
}

func (c *programClient) write(b []byte) {
	if c.conn != nil {
		_, _ = c.conn.Write(b) // when it fails the broker has closed the connection, which is heard
	}
}

// channel returns an open channel.
func (c *programClient) channel(id uint16) *programChannel {
	c.player.t.Helper()
	if c.conn == nil {
		c.connect()
	}
	if c.channels[id] == nil {
		c.channels[id] = &programChannel{client: c, id: id, noAck: map[string]bool{}}
		c.channels[id].call(&amqp.ChannelOpen{})
	}
	return c.channels[id]
}

func (c *programClient) connect() {
	t := c.player.t
	t.Helper()
	conn, err := net.Dial("tcp", c.player.address)
	if err != nil {
		t.Fatal(err)
	}
	c.conn, c.events = conn, make(chan programEvent, 10_000)
	go readEvents(conn, c.events)
	c.write([]byte(amqp.ProtocolHeader))
	c.await(0, func(amqp.Method) bool { return true })
	var can amqp.Table
	for _, name := range []string{"consumer_cancel_notify", "basic.nack", "publisher_confirms"} {
		can = append(can, amqp.Field{Key: name, Value: true})
	}
	c.send(0, &amqp.ConnectionStartOK{
		ClientProperties: amqp.Table{{Key: "capabilities", Value: can}}, Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US",
	})
	c.await(0, func(amqp.Method) bool { return true })
	c.send(0, &amqp.ConnectionTuneOK{ChannelMax: 10, FrameMax: 131072, Heartbeat: 600}, &amqp.ConnectionOpen{VirtualHost: "/"})
	c.await(0, func(amqp.Method) bool { return true })
}

// readEvents reads until the connection ends. Heartbeats are no events.
func readEvents(conn net.Conn, to chan<- programEvent) {
	defer close(to)
	var in []byte
	open := map[uint16]*programEvent{} // waits for its content
	missing := map[uint16]int{}
	part := make([]byte, 64<<10)
	for {
		n, err := conn.Read(part)
		in = append(in, part[:n]...)
		for {
			f, n, _ := amqp.NextFrame(in, 1<<20)
			if n == 0 {
				break
			}
			in = in[n:]
			switch f.Type {
			case amqp.FrameMethod:
				m, _ := amqp.ParseMethod(f.Payload)
				open[f.Channel] = &programEvent{channel: f.Channel, method: m}
				switch m.(type) {
				case *amqp.BasicDeliver, *amqp.BasicGetOK, *amqp.BasicReturn:
					continue
				}
			case amqp.FrameHeader:
				h, _ := amqp.ParseContentHeader(f.Payload)
				missing[f.Channel] = int(h.BodySize)
			case amqp.FrameBody:
				missing[f.Channel] -= len(f.Payload)
				open[f.Channel].body += string(f.Payload)
			default:
				continue
			}
			if e := open[f.Channel]; missing[f.Channel] == 0 {
				delete(open, f.Channel)
				to <- *e
			}
		}
		if err != nil {
			return
		}
	}
}

// await takes what is heard until an answer on a channel. It returns nil if there will be none.
func (c *programClient) await(channel uint16, answers func(amqp.Method) bool) amqp.Method {
	c.player.t.Helper()
	for {
		e, open, inTime := process.Receive(c.events)
		switch {
		case !inTime:
			c.player.t.Fatalf("%s: no answer on channel %d", c.name, channel)
		case !open:
			c.hangUp()
			return nil
		case e.channel == channel && answers(e.method):
			return e.method
		case !c.hear(e):
			return nil
		case e.channel == channel && channel > 0 && c.channels[channel] == nil:
			return nil
		}
	}
}

// hear takes note of what the broker says unasked. It returns false when that is the end of the connection.
func (c *programClient) hear(e programEvent) bool {
	if c != c.player.clients[2] {
		c.player.heard++
	}
	if m, ok := e.method.(*amqp.ConnectionClose); ok {
		c.said = append(c.said, fmt.Sprintf("connection closed: %d %s", m.ReplyCode, m.ReplyText))
		c.send(0, &amqp.ConnectionCloseOK{})
		c.hangUp()
		return false
	}
	if ch := c.channels[min(int(e.channel), len(c.channels)-1)]; ch != nil {
		ch.hear(e)
	}
	return true
}

// hangUp ends the connection. What the channels heard is forgotten: how far it came is chance.
func (c *programClient) hangUp() {
	if c.conn == nil {
		return
	}
	_ = c.conn.Close() // in any case
	for range c.events {
	}
	c.conn, c.channels = nil, [3]*programChannel{}
}

func (c *programClient) eachOpen(fn func(ch *programChannel)) {
	for _, ch := range c.channels {
		if ch != nil && c.conn != nil {
			fn(ch)
		}
	}
}

// report returns what was heard since it was last called.
func (c *programClient) report() string {
	var b strings.Builder
	for _, line := range c.said {
		fmt.Fprintf(&b, "    %s: %s\n", c.name, line)
	}
	c.said = nil
	c.eachOpen(func(ch *programChannel) { ch.report(&b) })
	return b.String()
}
