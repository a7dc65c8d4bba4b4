package broker

import (
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/tests/process"
)

// peer is a client that says what the test tells it to, however wrong.
type peer struct {
	t    *testing.T
	conn net.Conn
	in   []byte // read and not looked at
}

// connect opens a socket and says nothing.
func connect(t *testing.T, address string) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &peer{t: t, conn: conn}
}

// login connects and comes as far as an open connection.
func login(t *testing.T, address string, capabilities ...string) *peer {
	t.Helper()
	p := connect(t, address)
	p.start(capabilities...)
	p.method(0, &amqp.ConnectionTuneOK{ChannelMax: 2047, FrameMax: 131072})
	p.method(0, &amqp.ConnectionOpen{VirtualHost: "/"})
	expect[*amqp.ConnectionOpenOK](p, 0)
	return p
}

// start comes as far as connection.tune.
func (p *peer) start(capabilities ...string) {
	p.t.Helper()
	p.send([]byte(amqp.ProtocolHeader))
	expect[*amqp.ConnectionStart](p, 0)
	p.method(0, startOK("PLAIN", "\x00guest\x00guest", capabilities...))
	expect[*amqp.ConnectionTune](p, 0)
}

func startOK(mechanism, response string, capabilities ...string) *amqp.ConnectionStartOK {
	var can amqp.Table
	for _, name := range capabilities {
		can = append(can, amqp.Field{Key: name, Value: true})
	}
	return &amqp.ConnectionStartOK{
		ClientProperties: amqp.Table{{Key: "capabilities", Value: can}},
		Mechanism:        mechanism, Response: response, Locale: "en_US",
	}
}

// channel opens a channel.
func (p *peer) channel(id uint16) *peer {
	p.t.Helper()
	p.method(id, &amqp.ChannelOpen{})
	expect[*amqp.ChannelOpenOK](p, id)
	return p
}

func (p *peer) send(b []byte) {
	p.t.Helper()
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatalf("writing: %v", err)
	}
}

func (p *peer) method(channel uint16, m amqp.Method) {
	p.t.Helper()
	p.send(amqp.AppendMethod(nil, channel, m))
}

// frame returns the next frame; ok is false when the broker has closed the socket.
func (p *peer) frame() (f amqp.Frame, ok bool) {
	p.t.Helper()
	for {
		f, n, err := amqp.NextFrame(p.in, 1<<20)
		if err != nil {
			p.t.Fatalf("frame from the broker: %v", err)
		}
		p.in = p.in[n:]
		if n > 0 {
			return f, true
		}
		if !p.fill() {
			return amqp.Frame{}, false
		}
	}
}

// fill reads what comes next; it returns false at the end.
func (p *peer) fill() bool {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(process.Patience)) // a socket that is closed says so when it is read
	b := make([]byte, 64<<10)
	n, err := p.conn.Read(b)
	p.in = append(p.in, b[:n]...)
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		p.t.Fatal("the broker says nothing")
	case err != nil && !errors.Is(err, io.EOF):
		p.t.Logf("reading: %v", err)
	}
	return n > 0
}

// next returns the next method; heartbeats do not count. It is nil at the end.
func (p *peer) next() (channel uint16, m amqp.Method) {
	p.t.Helper()
	for {
		f, ok := p.frame()
		if !ok {
			return 0, nil
		}
		if f.Type == amqp.FrameHeartbeat {
			continue
		}
		m, err := amqp.ParseMethod(f.Payload)
		if err != nil {
			p.t.Fatalf("method from the broker: %v", err)
		}
		return f.Channel, m
	}
}

// expect returns the next method, which has to be an M on that channel.
func expect[M amqp.Method](p *peer, channel uint16) M {
	p.t.Helper()
	id, got := p.next()
	m, ok := got.(M)
	if !ok || id != channel {
		p.t.Fatalf("on channel %d: got %T %+v, want %T on channel %d", id, got, got, m, channel)
	}
	return m
}

// inAnyOrder expects methods by name.
func (p *peer) inAnyOrder(names ...string) {
	p.t.Helper()
	var got []string
	for range names {
		_, m := p.next()
		if m == nil {
			p.t.Fatalf("the end came after %v, want %v", got, names)
		}
		got = append(got, m.Name())
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(names))) {
		p.t.Errorf("got %v, want %v", got, names)
	}
}

// refused expects connection.close, answers it, and expects the end.
func (p *peer) refused(code uint16, text string) {
	p.t.Helper()
	m := expect[*amqp.ConnectionClose](p, 0)
	if m.ReplyCode != code || m.ReplyText != text {
		p.t.Errorf("connection.close:\n got %d %s\nwant %d %s", m.ReplyCode, m.ReplyText, code, text)
	}
	p.method(0, &amqp.ConnectionCloseOK{})
	p.end()
}

// channelRefused expects channel.close, and answers it. The connection goes on.
func (p *peer) channelRefused(channel, code uint16, text string) {
	p.t.Helper()
	m := expect[*amqp.ChannelClose](p, channel)
	if m.ReplyCode != code || m.ReplyText != text {
		p.t.Errorf("channel.close:\n got %d %s\nwant %d %s", m.ReplyCode, m.ReplyText, code, text)
	}
	p.method(channel, &amqp.ChannelCloseOK{})
	p.channel(channel)
}

// end expects that the broker closes the socket without another word, and closes its own side.
func (p *peer) end() {
	p.t.Helper()
	if id, m := p.next(); m != nil {
		p.t.Errorf("on channel %d: got %T %+v, want the end", id, m, m)
	}
	p.conn.Close()
}

// raw is a frame with whatever in it.
func raw(kind byte, channel uint16, payload string) []byte {
	n := len(payload)
	b := []byte{kind, byte(channel >> 8), byte(channel), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	return append(append(b, payload...), 0xCE)
}

// publishing is a whole message to the default exchange.
func publishing(channel uint16, queue string, body []byte) []byte {
	b := amqp.AppendMethod(nil, channel, &amqp.BasicPublish{RoutingKey: queue})
	b = amqp.AppendContentHeader(b, channel, uint64(len(body)), []byte{0, 0})
	return amqp.AppendBody(b, channel, body, 131072)
}
