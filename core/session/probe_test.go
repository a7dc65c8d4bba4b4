package session

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
	"github.com/curfewmq/curfew/sdk/hook"
)

// probe is a client without a socket: it feeds frames to a connection and reads the pending output.
type probe struct {
	t    testing.TB
	conn *Conn
	now  hook.Instant
	in   []byte // bytes that the connection has not read
	out  []byte // its output that the test has not read
}

func newProbe(tb testing.TB, change ...func(*Options)) *probe {
	tb.Helper()
	return probeOf(tb, testServer(tb, change...), Peer{Address: "192.0.2.1:4711", Local: "192.0.2.2:5672"})
}

func probeOf(tb testing.TB, s *Server, peer Peer) *probe {
	tb.Helper()
	p := &probe{t: tb, conn: s.Accept(peer, func() {}), now: 1}
	tb.Cleanup(func() { p.conn.Release(p.now) })
	return p
}

// feed feeds raw bytes, as one read.
func (p *probe) feed(b []byte) {
	p.t.Helper()
	p.in = append(p.in, b...)
	k := block.New(len(p.in))
	defer k.Release()
	n := p.conn.Feed(p.now, k, k.Buf[:copy(k.Buf, p.in)])
	p.in = p.in[n:]
	if login := p.conn.Login(); login != nil {
		login(context.Background())
		p.conn.Tick(p.now)
		p.feed(nil)
		return
	}
	for {
		b, _, _ := p.conn.Writer().Next()
		if len(b) == 0 {
			return
		}
		p.out = append(p.out, slices.Concat(b...)...)
	}
}

func (p *probe) send(channel uint16, ms ...amqp.Method) {
	p.t.Helper()
	var b []byte
	for _, m := range ms {
		b = amqp.AppendMethod(b, channel, m)
	}
	p.feed(b)
}

// frame returns the next frame from the connection; ok is false if there is none.
func (p *probe) frame() (f amqp.Frame, ok bool) {
	p.t.Helper()
	f, n, err := amqp.NextFrame(p.out, 1<<20)
	if err != nil {
		p.t.Fatalf("frame from the server: %v", err)
	}
	p.out = p.out[n:]
	return f, n > 0
}

// method returns the next method from the connection, nil if there is none.
func (p *probe) method() (channel uint16, m amqp.Method) {
	p.t.Helper()
	f, ok := p.frame()
	if !ok {
		return 0, nil
	}
	m, err := amqp.ParseMethod(f.Payload)
	if err != nil {
		p.t.Fatalf("method from the server: %v", err)
	}
	return f.Channel, m
}

// expect returns the next method, which must be an M on the channel.
func expect[M amqp.Method](p *probe, channel uint16) M {
	p.t.Helper()
	ch, got := p.method()
	m, ok := got.(M)
	if !ok || ch != channel {
		p.t.Fatalf("on channel %d: got %T %+v, want %T on channel %d", ch, got, got, m, channel)
	}
	return m
}

// refused expects connection.close.
func (p *probe) refused(code uint16, text string) {
	p.t.Helper()
	m := expect[*amqp.ConnectionClose](p, 0)
	if m.ReplyCode != code || m.ReplyText != text {
		p.t.Errorf("connection.close:\n got %d %s\nwant %d %s", m.ReplyCode, m.ReplyText, code, text)
	}
}

// silent expects nothing from the connection.
func (p *probe) silent() {
	p.t.Helper()
	if len(p.out) > 0 {
		p.t.Errorf("got %q, want silence", p.out)
	}
}

func (p *probe) state(want State) {
	p.t.Helper()
	if got := p.conn.State(); got != want {
		p.t.Errorf("got state %d, want %d", got, want)
	}
}

// The steps of a handshake.

func (p *probe) start() *probe {
	p.t.Helper()
	p.feed([]byte(amqp.ProtocolHeader))
	expect[*amqp.ConnectionStart](p, 0)
	return p
}

func startOK(can ...string) *amqp.ConnectionStartOK {
	var capabilities amqp.Table
	for _, name := range can {
		capabilities = append(capabilities, amqp.Field{Key: name, Value: true})
	}
	return &amqp.ConnectionStartOK{
		ClientProperties: amqp.Table{{Key: "capabilities", Value: capabilities}},
		Mechanism:        "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US",
	}
}

func (p *probe) login(can ...string) *probe {
	p.t.Helper()
	p.start().send(0, startOK(can...))
	expect[*amqp.ConnectionTune](p, 0)
	return p
}

func (p *probe) tune() *probe {
	p.t.Helper()
	p.send(0, &amqp.ConnectionTuneOK{ChannelMax: 2047, FrameMax: 131072})
	return p
}

func (p *probe) open(can ...string) *probe {
	p.t.Helper()
	p.login(can...).tune().send(0, &amqp.ConnectionOpen{VirtualHost: "/"})
	expect[*amqp.ConnectionOpenOK](p, 0)
	p.state(Open)
	return p
}

func (p *probe) channel(id uint16) *probe {
	p.t.Helper()
	p.send(id, &amqp.ChannelOpen{})
	expect[*amqp.ChannelOpenOK](p, id)
	return p
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
