package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// lines is a log.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// open returns a listener for which all of 127.0.0.0/8 is a proxy, its log, and what it accepts.
func open(t *testing.T, change ...func(*Options)) (address string, log lines, sockets chan net.Conn) {
	t.Helper()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log, sockets = make(lines, 100), make(chan net.Conn)
	o := Options{
		Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Timeout: time.Minute, Key: "listen.proxy-protocol",
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&o)
	}
	l := Listen(raw, o)
	go func() {
		defer close(sockets)
		for {
			socket, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
				return
			}
			sockets <- socket
		}
	}()
	t.Cleanup(func() {
		l.Close()
		for socket := range sockets {
			socket.Close()
		}
	})
	return raw.Addr().String(), log, sockets
}

func dial(t *testing.T, address, say string) net.Conn {
	t.Helper()
	socket, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	if _, err := socket.Write([]byte(say)); err != nil {
		t.Fatal(err)
	}
	return socket
}

// wantEnd waits until the other end has closed a socket.
func wantEnd(t *testing.T, socket net.Conn) {
	t.Helper()
	if b, _ := io.ReadAll(socket); len(b) > 0 {
		t.Errorf("got %q, want the end", b)
	}
}

func TestForwardedConnections(t *testing.T) {
	address, _, sockets := open(t)
	for _, c := range []struct{ header, remote, local string }{
		{"PROXY TCP4 192.0.2.1 198.51.100.1 4711 5672\r\n", "192.0.2.1:4711", "198.51.100.1:5672"},
		{binaryHeader(1, 0x21, ends6+facts), "[2001:db8::1]:4711", "[::1]:5672"},
		{"PROXY UNKNOWN\r\n", "", ""},
		{binaryHeader(0, 0, ""), "", ""},
	} {
		client := dial(t, address, c.header+"hello")
		socket := <-sockets
		remote, local := c.remote, c.local
		if remote == "" { // nothing was announced
			remote, local = client.LocalAddr().String(), address
		}
		if socket.RemoteAddr().String() != remote || socket.LocalAddr().String() != local {
			t.Errorf("%q: from %v to %v, want %s, %s", c.header, socket.RemoteAddr(), socket.LocalAddr(), remote, local)
		}
		if _, ok := socket.RemoteAddr().(*net.TCPAddr); !ok {
			t.Errorf("the address is a %T", socket.RemoteAddr())
		}
		if !Proxied(socket) || !Proxied(tls.Server(socket, nil)) {
			t.Error("it does not count as forwarded")
		}
		client.Close()
		if got, _ := io.ReadAll(socket); string(got) != "hello" {
			t.Errorf("behind the header came %q", got)
		}
		socket.Close()
	}
}

// A peer that is not listed connects as usual, and cannot claim another address.
func TestDirectConnections(t *testing.T) {
	address, _, sockets := open(t, func(o *Options) {
		o.Proxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("::1/128")}
	})
	client := dial(t, address, "PROXY TCP4 192.0.2.1 198.51.100.1 4711 5672\r\n")
	socket := <-sockets
	defer socket.Close()
	if socket.RemoteAddr().String() != client.LocalAddr().String() || Proxied(socket) {
		t.Errorf("from %v, forwarded: %t", socket.RemoteAddr(), Proxied(socket))
	}
	client.Close()
	if got, _ := io.ReadAll(socket); !strings.HasPrefix(string(got), "PROXY ") {
		t.Errorf("it said %q", got)
	}
}

// A proxy that sends no header holds up no other connection.
func TestSlowProxies(t *testing.T) {
	address, log, sockets := open(t, func(o *Options) { o.Timeout = 300 * time.Millisecond })
	slow := dial(t, address, "PROXY TCP4 192.0.2.1")
	dial(t, address, "PROXY TCP4 192.0.2.2 198.51.100.1 1 2\r\n")
	socket := <-sockets
	socket.Close()
	if socket.RemoteAddr().String() != "192.0.2.2:1" {
		t.Errorf("from %v", socket.RemoteAddr())
	}
	wantEnd(t, slow)
	if line := <-log; !strings.Contains(line, "level=WARN") || !strings.Contains(line, "i/o timeout") {
		t.Errorf("logged %s", line)
	}
}

func TestRefusedProxies(t *testing.T) {
	for _, c := range []struct{ say, want string }{
		{"AMQP\x00\x00\x09\x01", `level=WARN msg="connection from a proxy refused" proxy=127.0.0.1`},
		{"AMQP\x00\x00\x09\x01", "no PROXY header: it begins with"},
		{"PROXY TCP4 192.0.2.1 198.51.100.1 99999 1\r\n", "is not a port"},
		{"PROXY UDP4\r\n", "key=listen.proxy-protocol"},
	} {
		address, log, _ := open(t)
		wantEnd(t, dial(t, address, c.say))
		if line := <-log; !strings.Contains(line, c.want) {
			t.Errorf("%q: logged %s, want %s", c.say, line, c.want)
		}
	}
	address, log, _ := open(t)
	dial(t, address, "").Close()
	if line := <-log; !strings.Contains(line, "level=DEBUG") {
		t.Errorf("a look whether the port is open: logged %s", line)
	}
}

// The number of connections without a header is bounded: the oldest makes way.
func TestManyWithoutAHeader(t *testing.T) {
	address, log, sockets := open(t, func(o *Options) { o.Most = 3 })
	var waiting []net.Conn
	for i := range 4 {
		waiting = append(waiting, dial(t, address, fmt.Sprintf("PROXY TCP4 192.0.2.%d", i)))
	}
	wantEnd(t, waiting[0])
	if line := <-log; !strings.Contains(line, "too many connections wait for their header") {
		t.Errorf("logged %s", line)
	}
	if _, err := waiting[3].Write([]byte(" 198.51.100.1 1 2\r\n")); err != nil {
		t.Fatal(err)
	}
	if socket := <-sockets; socket.RemoteAddr().String() != "192.0.2.3:1" {
		t.Errorf("from %v", socket.RemoteAddr())
	}
}

// Refusals within one second become one line.
func TestRefusalsDoNotFillTheLog(t *testing.T) {
	address, log, _ := open(t)
	const many = 50
	for range many {
		wantEnd(t, dial(t, address, "GET /"))
	}
	if n := len(log); n == 0 || n > many/2 {
		t.Errorf("%d lines of %d refusals", n, many)
	}
}

// poor is a listener that lacks file descriptors once.
type poor struct {
	net.Listener
	failed bool
}

func (p *poor) Accept() (net.Conn, error) {
	if !p.failed {
		p.failed = true
		return nil, io.ErrNoProgress
	}
	return p.Listener.Accept()
}

// Errors of the system reach the caller of Accept, and connections after them are accepted.
func TestErrorsOfAccept(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(&poor{Listener: raw}, Options{Proxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	if _, err := l.Accept(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v", err)
	}
	dial(t, raw.Addr().String(), "")
	socket, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	socket.Close()
	dial(t, raw.Addr().String(), "") // which nobody accepts
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v after the end", err)
	}
	_ = l.Close() // a second time does nothing
}

func TestNoProxies(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if Listen(raw, Options{}) != raw {
		t.Error("a listener without proxies is not the one it was")
	}
}
