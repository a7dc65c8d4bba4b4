package session

import (
	"context"
	"fmt"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/vhost"
)

// Direct is a connection from inside the broker with one channel, for a user who has logged in elsewhere, as over the
// management API. What it asks for is permitted, done and refused as it is for any client. It belongs to one goroutine.
type Direct struct {
	conn  *Conn
	clock clock.Clock
	tick  chan struct{} // capacity 1; has a value when Tick has to be called
	in    []byte        // what the connection has said and nobody has looked at
}

// directFrameMax is such that every body is one frame.
const directFrameMax = 1 << 30

// directChannel is the only channel of a Direct.
const directChannel = 1

// Direct opens a connection for a user in a vhost, which the user must have access to. The caller closes it.
func (s *Server) Direct(user auth.User, v *vhost.VHost, clock clock.Clock) *Direct {
	d := &Direct{clock: clock, tick: make(chan struct{}, 1)}
	c := s.Accept(Peer{Address: "direct", Local: "direct"}, func() { signal(d.tick) })
	c.user, c.vhost, c.phase = user, v, running
	c.frameMax, c.channelMax = directFrameMax, directChannel
	c.caps = capabilities{cancelNotify: true, nack: true}
	c.addChannel(newChannel(c, directChannel))
	d.conn = c
	return d
}

// Close gives back what the connection holds, such as messages that were not settled.
func (d *Direct) Close() { d.conn.Release(d.clock()) }

// Send sends a method that has no content. Short strings in it must not have more than 255 bytes.
func (d *Direct) Send(m amqp.Method) { d.feed(amqp.AppendMethod(nil, directChannel, m)) }

// Call sends a method and waits for the one that answers it.
func (d *Direct) Call(ctx context.Context, m amqp.Method) (Reply, error) {
	d.Send(m)
	return d.Next(ctx)
}

// Publish sends a message.
func (d *Direct) Publish(m *amqp.BasicPublish, props, body []byte) {
	b := amqp.AppendMethod(nil, directChannel, m)
	b = amqp.AppendContentHeader(b, directChannel, uint64(len(body)), props)
	d.feed(amqp.AppendBody(b, directChannel, body, directFrameMax))
}

func (d *Direct) feed(b []byte) {
	k := block.New(len(b))
	defer k.Release()
	d.conn.Feed(d.clock(), k, k.Buf[:copy(k.Buf, b)])
	d.listen()
}

// listen takes over what the connection has to say. It reports whether there was anything.
func (d *Direct) listen() bool {
	before := len(d.in)
	for bs, _, _ := d.conn.out.next(); len(bs) > 0; bs, _, _ = d.conn.out.next() {
		for _, b := range bs {
			d.in = append(d.in, b...)
		}
	}
	return len(d.in) > before
}

// Reply is what the broker says, with the content that belongs to it.
type Reply struct {
	Method      amqp.Method
	Props, Body []byte
}

// Next waits for what the broker says next. Its error is an [*amqp.Error] if that is the end of the channel or connection.
func (d *Direct) Next(ctx context.Context) (Reply, error) {
	for len(d.in) == 0 {
		if d.listen() {
			break
		}
		select {
		case <-d.conn.out.wake:
		case <-d.tick:
			d.conn.Tick(d.clock())
		case <-ctx.Done():
			return Reply{}, ctx.Err()
		}
	}
	return d.reply()
}

// reply takes the next method off what was said. Content is said in one piece with its method.
func (d *Direct) reply() (r Reply, err error) {
	if r.Method, err = amqp.ParseMethod(d.frame().Payload); err != nil {
		return Reply{}, fmt.Errorf("from the broker itself: %w", err)
	}
	switch m := r.Method.(type) {
	case *amqp.ChannelClose:
		return Reply{}, closedFor(m.ReplyCode, m.ReplyText)
	case *amqp.ConnectionClose:
		return Reply{}, closedFor(m.ReplyCode, m.ReplyText)
	case *amqp.BasicGetOK, *amqp.BasicReturn:
		h, err := amqp.ParseContentHeader(d.frame().Payload)
		if err != nil {
			return Reply{}, fmt.Errorf("from the broker itself: %w", err)
		}
		r.Props = h.Props
		if h.BodySize > 0 {
			r.Body = d.frame().Payload
		}
	}
	return r, nil
}

// frame takes the next frame off what was said, which is whole frames.
func (d *Direct) frame() amqp.Frame {
	f, n, err := amqp.NextFrame(d.in, directFrameMax)
	if err != nil || n == 0 {
		panic(fmt.Sprintf("session: a frame of our own: %d bytes, %v", len(d.in), err))
	}
	d.in = d.in[n:]
	return f
}

// closedFor makes an error of a reply code and text.
func closedFor(code uint16, text string) error {
	e := amqp.Errorf(code, "")
	if rest, ok := strings.CutPrefix(text, e.Name+" - "); ok {
		e.Text = rest
	}
	return e
}
