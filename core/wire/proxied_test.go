package wire

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// proxied starts a broker for which this machine is a proxy.
func proxied(t *testing.T, change ...func(*Options)) *Server {
	t.Helper()
	return start(t, append([]func(*Options){func(o *Options) {
		o.AMQP, o.Proxies = "127.0.0.1:0", []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		o.HandshakeTimeout = time.Minute // of a real clock, on machines that are busy
	}}, change...)...)
}

// announce dials as a proxy and says for whom.
func announce(t *testing.T, address net.Addr, header string) net.Conn {
	t.Helper()
	socket, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	if _, err := socket.Write([]byte(header)); err != nil {
		t.Fatal(err)
	}
	return socket
}

const header4 = "PROXY TCP4 192.0.2.1 198.51.100.1 4711 5672\r\n"

// The addresses that the proxy announces are those of the connection, over TLS, too.
func TestConnectionsThroughAProxy(t *testing.T) {
	a := newAuthority(t)
	s := proxied(t, func(o *Options) { o.AMQPS, o.TLS = "127.0.0.1:0", a.server("broker") })
	plain := newClient(t, announce(t, s.Addresses()[0], header4))
	config := a.client("")
	config.ServerName = "127.0.0.1"
	secure := newClient(t, tls.Client(announce(t, s.Addresses()[1], "PROXY TCP6 2001:db8::1 ::1 4711 5671\r\n"), config))
	plain.open(0)
	secure.open(0)
	var names []string
	for _, c := range s.OpenConns() {
		names = append(names, c.Name())
	}
	slices.Sort(names)
	want := []string{"192.0.2.1:4711 -> 198.51.100.1:5672", "[2001:db8::1]:4711 -> [::1]:5671"}
	if fmt.Sprint(names) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", names, want)
	}
	plain.close()
	secure.close()
}

// A client behind a proxy never counts as local, whatever the proxy says: the password of guest is public.
func TestGuestThroughAProxy(t *testing.T) {
	s := proxied(t, func(o *Options) { o.Session.GuestLoopbackOnly = true })
	for _, header := range []string{
		header4, "PROXY TCP4 127.0.0.1 127.0.0.1 4711 5672\r\n", "PROXY TCP6 ::1 ::1 4711 5672\r\n", "PROXY TCP6 ::ffff:127.0.0.1 ::1 4711 5672\r\n",
		"PROXY UNKNOWN\r\n", "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00", "\r\n\r\n\x00\r\nQUIT\n\x21\x00\x00\x00",
	} {
		c := newClient(t, announce(t, s.Addresses()[0], header))
		c.greet()
		c.ask("PLAIN", "\x00guest\x00guest")
		if m := expectMethod[*amqp.ConnectionClose](c); m.ReplyCode != amqp.ReplyAccessRefused {
			t.Errorf("%q: closed with %d %s", header, m.ReplyCode, m.ReplyText)
		}
	}
}

// After a drain, the reopened listener used to read no headers: proxies were refused, and a proxy on this machine that sent none let
// strangers in as guest.
func TestProxiesAfterAResume(t *testing.T) {
	s := proxied(t, func(o *Options) { o.Session.GuestLoopbackOnly = true })
	if err := s.Suspend(false); err != nil {
		t.Fatal(err)
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, announce(t, s.Addresses()[0], header4))
	c.greet()
	c.ask("PLAIN", "\x00guest\x00guest")
	if m := expectMethod[*amqp.ConnectionClose](c); m.ReplyCode != amqp.ReplyAccessRefused {
		t.Errorf("closed with %d %s", m.ReplyCode, m.ReplyText)
	}
	answer, _ := io.ReadAll(announce(t, s.Addresses()[0], amqp.ProtocolHeader)) // it may be reset, with bytes that nobody has read
	if len(answer) > 0 {
		t.Errorf("answered %q to a proxy that says nothing", answer)
	}
}

// Handshakes are counted by the address of the client, not that of the proxy: a client that only connects is crowded out.
func TestHandshakesThroughAProxy(t *testing.T) {
	s := proxied(t, func(o *Options) { o.Handshakes = 3 })
	var greedy []*client
	patient := newClient(t, announce(t, s.Addresses()[0], "PROXY TCP4 192.0.2.2 198.51.100.1 1 5672\r\n"))
	patient.greet()
	for i := range 3 {
		c := newClient(t, announce(t, s.Addresses()[0], fmt.Sprintf("PROXY TCP4 192.0.2.1 198.51.100.1 %d 5672\r\n", i)))
		c.greet()
		greedy = append(greedy, c)
	}
	greedy[0].ended()
	patient.ask("PLAIN", "\x00guest\x00guest")
	expectMethod[*amqp.ConnectionTune](patient)
}

// A client that is not listed as a proxy cannot claim another address. The log tells the operator which key to set if it is a proxy.
func TestProxyThatIsNotListed(t *testing.T) {
	for name, header := range map[string]string{"1": header4, "2": "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"} {
		t.Run(name, func(t *testing.T) {
			told := make(lines, 100)
			s := start(t, func(o *Options) { o.AMQP, o.Session.Log = "127.0.0.1:0", slog.New(slog.NewTextHandler(told, nil)) })
			socket := announce(t, s.Addresses()[0], header)
			var answer bytes.Buffer
			_, _ = answer.ReadFrom(socket) // it may be reset, with bytes that nobody has read
			if got := answer.String(); got != amqp.ProtocolHeader && got != "" {
				t.Errorf("answered %q", got)
			}
			if line := <-told; !strings.Contains(line, "not in listen.proxy-protocol") {
				t.Errorf("logged %s", line)
			}
		})
	}
}

// The time for a header is part of the time for the handshake.
func TestHandshakeTimeoutBeginsBeforeTheHeader(t *testing.T) {
	const timeout = time.Second
	s := proxied(t, func(o *Options) { o.HandshakeTimeout = timeout })
	began := time.Now()
	socket := announce(t, s.Addresses()[0], header4[:10])
	time.AfterFunc(timeout*8/10, func() { _, _ = socket.Write([]byte(header4[10:])) })
	newClient(t, socket).ended()
	if took := time.Since(began); took < timeout*9/10 {
		t.Errorf("ended after %v", took)
	}
}

// A shutdown does not wait for headers.
func TestShutdownWithHalfAHeader(t *testing.T) {
	s := proxied(t, func(o *Options) { o.HandshakeTimeout = time.Hour })
	socket := announce(t, s.Addresses()[0], header4[:10])
	connected := newClient(t, announce(t, s.Addresses()[0], header4))
	connected.greet()
	go func() { // or the broker waits for it
		connected.ended()
		connected.socket.Close()
	}()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	newClient(t, socket).ended()
}
