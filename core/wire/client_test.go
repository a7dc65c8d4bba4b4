package wire

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/vhost"
)

// newServer returns a server without plugins or listeners. It is shut down when the test, or its bubble, ends.
func newServer(tb testing.TB, change ...func(*Options)) *Server {
	tb.Helper()
	users := auth.New(auth.Options{})
	if err := users.CreateDefaults(); err != nil {
		tb.Fatal(err)
	}
	noPlugins, err := chain.New(nil, chain.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	clock, log := clock.New(), slog.New(slog.DiscardHandler)
	root := vhost.New(vhost.Config{Name: "/", Chain: noPlugins, Clock: clock, Log: log})
	o := Options{
		Clock: clock, HandshakeTimeout: 10 * time.Second,
		Session: session.Options{
			Product: "Curfew", Version: "1.0.0", ClusterName: "test",
			Users: users, VHosts: func(name string) (*vhost.VHost, bool) { return root, name == "/" },
			ChannelMax: 2047, FrameMax: 131072, Heartbeat: 60, MessageMax: 16 << 20,
			Log: log,
		},
	}
	for _, f := range change {
		f(&o)
	}
	s, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { cutOff(s) })
	return s
}

func contextFor(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// cutOff ends the server without a wait.
func cutOff(s *Server) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Shutdown(ctx) // says that it did not wait
}

// client is a hand-driven AMQP client. It reads everything that the server sends at once, whether or not the test uses it.
type client struct {
	t      *testing.T
	socket net.Conn
	frames chan amqp.Frame // closed when the server closes the connection
	gate   chan struct{}   // has a value while the client reads
}

// dial connects a client with a pipe, for tests in bubbles.
func dial(t *testing.T, s *Server) *client {
	t.Helper()
	near, far := net.Pipe()
	s.serve(far)
	return newClient(t, near)
}

func newClient(t *testing.T, socket net.Conn) *client {
	t.Helper()
	c := &client{t: t, socket: socket, frames: make(chan amqp.Frame, 1000), gate: make(chan struct{}, 1)}
	c.gate <- struct{}{}
	t.Cleanup(func() { socket.Close() })
	go c.read()
	return c
}

func (c *client) read() {
	defer close(c.frames)
	var in []byte
	part := make([]byte, 64<<10)
	for {
		<-c.gate
		n, err := c.socket.Read(part)
		c.gate <- struct{}{}
		in = append(in, part[:n]...)
		for {
			f, n, _ := amqp.NextFrame(in, 1<<20)
			if n == 0 {
				break
			}
			c.frames <- amqp.Frame{Type: f.Type, Channel: f.Channel, Payload: bytes.Clone(f.Payload)}
			in = in[n:]
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

// stall stops reading until resume.
func (c *client) stall() {
	_ = c.socket.SetReadDeadline(time.Unix(1, 0))
	<-c.gate
	_ = c.socket.SetReadDeadline(time.Time{})
}

func (c *client) resume() { c.gate <- struct{}{} }

func (c *client) write(b []byte) {
	c.t.Helper()
	if _, err := c.socket.Write(b); err != nil {
		c.t.Errorf("write: %v", err)
	}
}

func (c *client) send(channel uint16, ms ...amqp.Method) {
	c.t.Helper()
	var b []byte
	for _, m := range ms {
		b = amqp.AppendMethod(b, channel, m)
	}
	c.write(b)
}

// expectMethod returns the next method, which must be an M.
func expectMethod[M amqp.Method](c *client) M {
	c.t.Helper()
	f, ok := <-c.frames
	if !ok {
		var want M
		c.t.Fatalf("connection closed, want %T", want)
	}
	m, err := amqp.ParseMethod(f.Payload)
	if err != nil {
		c.t.Fatal(err)
	}
	got, ok := m.(M)
	if !ok {
		c.t.Fatalf("got %T %+v, want %T", m, m, got)
	}
	return got
}

// ended waits until the server closes the connection without sending more.
func (c *client) ended() {
	c.t.Helper()
	for f := range c.frames {
		c.t.Errorf("got frame %+v, want the end", f)
	}
}

// open does the handshake. heartbeat is in seconds.
func (c *client) open(heartbeat uint16) *client {
	c.t.Helper()
	c.write([]byte(amqp.ProtocolHeader))
	expectMethod[*amqp.ConnectionStart](c)
	c.send(0, &amqp.ConnectionStartOK{
		ClientProperties: amqp.Table{{Key: "capabilities", Value: amqp.Table{{Key: "connection.blocked", Value: true}}}},
		Mechanism:        "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US",
	})
	expectMethod[*amqp.ConnectionTune](c)
	c.send(0, &amqp.ConnectionTuneOK{ChannelMax: 100, FrameMax: 131072, Heartbeat: heartbeat}, &amqp.ConnectionOpen{VirtualHost: "/"})
	expectMethod[*amqp.ConnectionOpenOK](c)
	return c
}

func (c *client) close() {
	c.t.Helper()
	c.send(0, &amqp.ConnectionClose{ReplyCode: amqp.ReplySuccess})
	expectMethod[*amqp.ConnectionCloseOK](c)
	c.socket.Close()
	c.ended()
}
