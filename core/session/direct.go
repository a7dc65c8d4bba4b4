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

// Direct is a connection with one channel from inside the broker, for a user that logged in elsewhere, such as to the management API. The
// broker treats it like any client. It belongs to one goroutine.
type Direct struct {
	conn  *Conn
	clock clock.Clock
	tick  chan struct{} // capacity 1; has a value when Tick must be called
	in    []byte        // from the connection, not parsed yet
}

const (
	directFrameMax = 1 << 30 // so large that every body is one frame
	directChannel  = 1       // the only channel
)

// Direct opens a connection for a user to a vhost. The caller has checked the user's access, and must close the connection.
func (s *Server) Direct(user auth.User, v *vhost.VHost, clock clock.Clock) *Direct {
	d := &Direct{clock: clock, tick: make(chan struct{}, 1)}
	c := s.Accept(Peer{Address: "direct", Local: "direct"}, func() { signal(d.tick) })
	c.user = user
	c.use(v)
	c.frameMax, c.channelMax = directFrameMax, directChannel
	c.caps = capabilities{cancelNotify: true, nack: true}
	c.addChannel(newChannel(c, directChannel))
	d.conn = c
	return d
}

// Close gives back everything that the connection holds, such as unsettled messages.
func (d *Direct) Close() { d.conn.Release(d.clock()) }

// Send sends a method that has no content. Its short strings must not be longer than 255 bytes.
func (d *Direct) Send(m amqp.Method) { d.feed(amqp.AppendMethod(nil, directChannel, m)) }

// Call sends a method and waits for the answer.
func (d *Direct) Call(ctx context.Context, m amqp.Method) (Reply, error) {
	d.Send(m)
	return d.Next(ctx)
}

// Publish publishes a message.
func (d *Direct) Publish(m *amqp.BasicPublish, props, body []byte) {
	b := amqp.AppendMethod(nil, directChannel, m)
	b = amqp.AppendContentHeader(b, directChannel, uint64(len(body)), props)
	d.feed(amqp.AppendBody(b, directChannel, body, directFrameMax))
}

func (d *Direct) feed(b []byte) {
	k := block.New(len(b))
	defer k.Release()
	d.conn.Feed(d.clock(), k, k.Buf[:copy(k.Buf, b)])
	d.read()
}

// read appends the pending output of the connection to in.
func (d *Direct) read() {
	for bs, _, _ := d.conn.out.next(); len(bs) > 0; bs, _, _ = d.conn.out.next() {
		for _, b := range bs {
			d.in = append(d.in, b...)
		}
	}
}

// Reply is a method from the broker, with its content.
type Reply struct {
	Method      amqp.Method
	Props, Body []byte
}

// Next waits for the next method from the broker. If the broker closes the channel or the connection, the error is an
// [*amqp.Error].
func (d *Direct) Next(ctx context.Context) (Reply, error) {
	for d.read(); len(d.in) == 0; d.read() {
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

// reply parses the next method and its content, which follows in one piece.
func (d *Direct) reply() (r Reply, err error) {
	if r.Method, err = amqp.ParseMethod(d.frame().Payload); err != nil {
		return Reply{}, fmt.Errorf("from the broker itself: %w", err)
	}
	switch m := r.Method.(type) {
	case *amqp.ChannelClose:
		return Reply{}, closedFor(m.ReplyCode, m.ReplyText)
	case *amqp.ConnectionClose:
		return Reply{}, d.conn.closedFor
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

// frame returns the next frame of in, which contains whole frames only.
func (d *Direct) frame() amqp.Frame {
	f, n, err := amqp.NextFrame(d.in, directFrameMax)
	if err != nil || n == 0 {
		panic(fmt.Sprintf("session: a frame of our own: %d bytes, %v", len(d.in), err))
	}
	d.in = d.in[n:]
	return f
}

// closedFor returns the error for a reply code and text.
func closedFor(code uint16, text string) error {
	e := amqp.Errorf(code, "")
	if rest, ok := strings.CutPrefix(text, e.Name+" - "); ok {
		e.Text = rest
	}
	return e
}
