package wire

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// linked returns a tcpConn and the far end of its connection.
func linked(t *testing.T, ahead bool) (l *tcpConn, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if far, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	near, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if l, err = newTCPConn(near.(*net.TCPConn), ahead); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close(); near.Close() })
	return l, far
}

func TestReadWithoutWaiting(t *testing.T) {
	l, far := linked(t, false)
	l.noWait = true
	l.setLowWater(lowWater)
	p := make([]byte, 100)
	if n, err := l.Read(p); n != 0 || !errors.Is(err, errWouldBlock) {
		t.Fatalf("%d, %v; want nothing", n, err)
	}
	if _, err := far.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	if got := eventually(t, l, p); got != "abc" {
		t.Errorf("read %q", got)
	}
	_ = l.SetReadDeadline(time.Unix(1, 0))
	if _, err := l.Read(p); err == nil || errors.Is(err, errWouldBlock) {
		t.Errorf("%v after the deadline", err)
	}
	_ = l.SetReadDeadline(time.Time{})

	// Few bytes wake the reader again as soon as polling has ended.
	if _, err := far.Write([]byte("d")); err != nil {
		t.Fatal(err)
	}
	l.noWait = false
	l.setLowWater(1)
	if n, err := l.Read(p); err != nil || string(p[:n]) != "d" {
		t.Errorf("%q, %v", p[:n], err)
	}
	l.noWait = true
	far.Close()
	for {
		_, err := l.Read(p)
		if errors.Is(err, errWouldBlock) {
			continue
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%v at the end", err)
		}
		return
	}
}

// eventually reads until there is something.
func eventually(t *testing.T, r io.Reader, p []byte) string {
	t.Helper()
	for {
		n, err := r.Read(p)
		switch {
		case n > 0:
			return string(p[:n])
		case !errors.Is(err, errWouldBlock):
			t.Fatal(err)
		}
	}
}

// A timer that failed, for example because the system could not poll it, ended the connection.
func TestReadsWithoutATimer(t *testing.T) {
	l, far := linked(t, false)
	c := newConn(newServer(t), l)
	c.moderation.polling, c.moderation.interval = true, shortestInterval
	c.poll()
	if c.ticks == nil {
		t.Skip("nothing is polled on this system")
	}
	c.ticks.close()
	if _, err := far.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	space, placed := c.readSpace()
	n, err := c.receive(space, placed)
	if n == 0 && err == nil { // it came so late
		space, placed = c.readSpace()
		n, err = c.receive(space, placed)
	}
	if string(space[:n]) != "abc" || err != nil || c.moderation.polling || c.ticks != nil {
		t.Errorf("read %q, %v; polled %t", space[:n], err, c.moderation.polling)
	}
	c.in.release()
}

// If a client sends each message as a TLS record, all records that have arrived are read at once. A partial record is kept until the
// rest comes.
func TestRecordsAreReadAhead(t *testing.T) {
	a := newAuthority(t)
	l, far := linked(t, true)
	certificates, err := LoadCertificates(a.server("broker"))
	if err != nil {
		t.Fatal(err)
	}
	records := &recorder{Conn: far}
	config := a.client("")
	config.ServerName = "127.0.0.1"
	client := tls.Client(records, config)
	c := &conn{socket: tls.Server(l, certificates.Config()), tcp: l, in: newInput()}
	done := make(chan error, 1)
	go func() { done <- client.Handshake() }()
	if err := c.socket.(*tls.Conn).Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	records.hold = true
	var want []byte
	for i := range 20 {
		m := fmt.Appendf(nil, "message %d;", i)
		want = append(want, m...)
		if _, err := client.Write(m); err != nil {
			t.Fatal(err)
		}
	}
	half := len(records.held) - 10
	_, _ = far.Write(records.held[:half])
	var got []byte
	read := func() {
		t.Helper()
		n, err := c.receive(c.in.space(), false)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, c.in.space()[:n]...)
	}
	read()
	if n := bytes.Count(got, []byte(";")); n < 2 {
		t.Errorf("%d messages at once", n)
	}
	for len(got) < len(want)-len("message 19;") {
		read()
	}
	l.noWait = true
	if n, err := c.socket.Read(c.in.space()); n != 0 || !errors.Is(err, errWouldBlock) {
		t.Errorf("%d, %v of half a record", n, err)
	}
	l.noWait = false
	_, _ = far.Write(records.held[half:])
	read()
	if !bytes.Equal(got, want) {
		t.Errorf("read %q", got)
	}
}

// A client need not wait for answers, and may close its side after its last byte. Over TLS the end was read together with the bytes before
// it, and bytes that had to wait, as all do during the login, were never handled.
func TestEndDoesNotOvertakeInput(t *testing.T) {
	a := newAuthority(t)
	s := start(t, func(o *Options) { o.AMQP, o.AMQPS, o.TLS = "127.0.0.1:0", "127.0.0.1:0", a.server("broker") })
	said := append([]byte(amqp.ProtocolHeader), amqp.AppendMethod(nil, 0, &amqp.ConnectionStartOK{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})...)
	for _, m := range []amqp.Method{&amqp.ConnectionTuneOK{ChannelMax: 100, FrameMax: 131072}, &amqp.ConnectionOpen{VirtualHost: "/"}} {
		said = amqp.AppendMethod(said, 0, m)
	}
	for name, version := range map[string]uint16{"plain": 0, "TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			socket, err := net.Dial("tcp", s.Addresses()[min(version, 1)].String())
			if err != nil {
				t.Fatal(err)
			}
			defer socket.Close()
			records := &recorder{Conn: socket}
			var speaker interface {
				net.Conn
				CloseWrite() error
			} = socket.(*net.TCPConn)
			if version > 0 {
				config := a.client("")
				config.ServerName, config.MaxVersion = "127.0.0.1", version
				secure := tls.Client(records, config)
				if err := secure.Handshake(); err != nil {
					t.Fatal(err)
				}
				records.hold, speaker = true, secure
			}
			words := amqp.AppendMethod(bytes.Clone(said), 1, &amqp.ChannelOpen{})
			words = amqp.AppendMethod(words, 1, &amqp.QueueDeclare{Queue: name})
			_, _ = speaker.Write(append(words, publication(name, []byte("last words"))...))
			_ = speaker.CloseWrite()
			_ = socket.SetWriteDeadline(time.Time{}) // TLS lets nothing through after the end
			_, _ = socket.Write(records.held)        // in one piece
			_, _ = io.Copy(io.Discard, socket)
			other := connect(t, s.Addresses()[0]).open(0).channel()
			if m := other.declare(name); m.MessageCount != 1 {
				t.Errorf("%d messages came", m.MessageCount)
			}
			other.close()
		})
	}
}

// recorder holds back what is written, on request.
type recorder struct {
	net.Conn
	hold bool
	held []byte
}

func (r *recorder) Write(b []byte) (int, error) {
	if !r.hold {
		return r.Conn.Write(b)
	}
	r.held = append(r.held, b...)
	return len(b), nil
}

// A connection that is not read from for long is not polled: 10,000 ticks a second used to wake the process for as long as an alarm lasted.
func TestBlockedConnectionIsNotPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := linked(t, false)
		c := newConn(newServer(t), l)
		c.deadline = c.srv.options.Clock().Add(time.Hour)
		c.moderation.polling, c.moderation.interval = true, shortestInterval
		c.poll()
		if c.ticks == nil {
			t.Skip("nothing is polled on this system")
		}
		over := make(chan struct{})
		c.logCaughtUp = over
		time.AfterFunc(time.Minute, func() { close(over) })
		wantElapsed(t, maxPolledWait, c.wait)
		if c.ticks != nil || c.moderation.polling || len(c.srv.ticks.free) != 1 {
			t.Error("its metronome ticks while it is held")
		}
		wantElapsed(t, time.Minute-maxPolledWait, c.wait)
		if c.logCaughtUp != nil {
			t.Error("it woke before the log had caught up")
		}
	})
}

// A client that sends one message at a time, as fast as it can, may be polled. Nothing is lost or reordered, with or without TLS, and its
// last bytes are read.
func TestMessagesOneAtATime(t *testing.T) {
	a := newAuthority(t)
	s := start(t, func(o *Options) {
		o.AMQP, o.AMQPS, o.TLS = "127.0.0.1:0", "127.0.0.1:0", a.server("broker")
	})
	secure, err := tls.Dial("tcp", s.Addresses()[1].String(), a.client(""))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*client{"plain": connect(t, s.Addresses()[0]), "TLS": newClient(t, secure)} {
		t.Run(name, func(t *testing.T) {
			c.open(60)
			c.send(1, &amqp.ChannelOpen{})
			expectMethod[*amqp.ChannelOpenOK](c)
			c.send(1, &amqp.QueueDeclare{Queue: name})
			expectMethod[*amqp.QueueDeclareOK](c)
			const messages = 20_000
			for i := range messages {
				b := amqp.AppendMethod(nil, 1, &amqp.BasicPublish{RoutingKey: name})
				b = amqp.AppendContentHeader(b, 1, 4, []byte{0, 0})
				c.write(amqp.AppendBody(b, 1, fmt.Appendf(nil, "%04d", i%10_000), 131072))
			}
			c.send(1, &amqp.QueueDelete{Queue: name})
			if ok := expectMethod[*amqp.QueueDeleteOK](c); ok.MessageCount != messages {
				t.Errorf("%d of %d messages arrived", ok.MessageCount, messages)
			}
			c.close()
		})
	}
}

// While there is nothing to read, there is no read buffer.
func TestReadOrIdle(t *testing.T) {
	l, far := linked(t, false)
	p, idled := make([]byte, 100), make(chan bool, 1)
	l.onIdle = func() { idled <- l.space == nil }
	if _, err := far.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for len(got) < 3 {
		n, err := l.readOrIdle(p)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p[:n]...)
		if n == 0 { // it came so late
			<-idled
		}
	}
	if string(got) != "abc" {
		t.Errorf("read %q", got)
	}

	read := make(chan error)
	go func() {
		n, err := l.readOrIdle(p)
		if err == nil && n != 0 {
			err = fmt.Errorf("%d bytes", n)
		}
		read <- err
	}()
	if !<-idled {
		t.Error("it holds what it was to read into")
	}
	if _, err := far.Write([]byte("d")); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	if n, err := l.readOrIdle(p); err != nil || string(p[:n]) != "d" {
		t.Errorf("%q, %v", p[:n], err)
	}
	_ = l.SetReadDeadline(time.Unix(1, 0))
	if _, err := l.readOrIdle(p); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v after the deadline", err)
	}
	_ = l.SetReadDeadline(time.Time{})
	far.Close()
	for len(idled) > 0 {
		<-idled
	}
	n, err := l.readOrIdle(p)
	if n == 0 && err == nil {
		n, err = l.readOrIdle(p)
	}
	if n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d, %v at the end", n, err)
	}
}
