package session

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/block"
)

func TestServerProperties(t *testing.T) {
	p := newProbe(t, func(o *Options) { o.Product, o.Version, o.Own = "RabbitMQ", "4.0.0", "0.7.1" })
	p.feed([]byte(amqp.ProtocolHeader))
	m := expect[*amqp.ConnectionStart](p, 0)
	if m.VersionMajor != 0 || m.VersionMinor != 9 || m.Mechanisms != "PLAIN AMQPLAIN" || m.Locales != "en_US" {
		t.Errorf("got version %d-%d, mechanisms %q, locales %q", m.VersionMajor, m.VersionMinor, m.Mechanisms, m.Locales)
	}
	for name, want := range map[string]string{"product": "RabbitMQ", "version": "4.0.0", "curfew_version": "0.7.1", "cluster_name": "test"} {
		if got, _ := m.ServerProperties.Lookup(name); got != want {
			t.Errorf("%s: got %v, want %s", name, got, want)
		}
	}
	v, _ := m.ServerProperties.Lookup("capabilities")
	capabilities, _ := v.(amqp.Table)
	for _, name := range []string{
		"publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify", "connection.blocked",
		"consumer_priorities", "authentication_failure_close", "per_consumer_qos", "direct_reply_to",
	} {
		if on, _ := capabilities.Lookup(name); on != true {
			t.Errorf("capability %s: got %v, want true", name, on)
		}
	}
}

func TestProtocolHeader(t *testing.T) {
	tests := []struct {
		name, header string
		accepted     bool
	}{
		{"0-9-1", "AMQP\x00\x00\x09\x01", true},
		{"0-9 as old clients write it", "AMQP\x01\x01\x00\x09", true},
		{"0-8", "AMQP\x01\x01\x08\x00", false},
		{"1.0", "AMQP\x00\x01\x00\x00", false},
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", false},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newProbe(t)
			p.feed([]byte(tt.header))
			if tt.accepted {
				expect[*amqp.ConnectionStart](p, 0)
				p.state(Handshake)
				return
			}
			if string(p.out) != amqp.ProtocolHeader {
				t.Errorf("got %q, want the server's header", p.out)
			}
			p.state(Closed)
		})
	}
}

func TestProtocolHeaderInPieces(t *testing.T) {
	p := newProbe(t)
	for _, c := range []byte(amqp.ProtocolHeader) {
		p.silent()
		p.feed([]byte{c})
	}
	expect[*amqp.ConnectionStart](p, 0)
}

func TestLogin(t *testing.T) {
	const closes = "authentication_failure_close"
	const text = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
	plainTable := amqp.AppendTable(nil, amqp.Table{{Key: "LOGIN", Value: "guest"}, {Key: "PASSWORD", Value: "guest"}})[4:]
	tests := []struct {
		name                string
		mechanism, response string
		can                 []string
		want                State
		text                string // of connection.close; "" = silence
	}{
		{name: "plain", mechanism: "PLAIN", response: "\x00guest\x00guest", want: Handshake},
		{name: "amqplain", mechanism: "AMQPLAIN", response: string(plainTable), want: Handshake},
		{name: "wrong password", mechanism: "PLAIN", response: "\x00guest\x00gast", want: Denied},
		{name: "wrong password, answered", mechanism: "PLAIN", response: "\x00guest\x00gast", can: []string{closes}, want: Closing, text: text},
		{name: "no such user", mechanism: "PLAIN", response: "\x00ghost\x00guest", can: []string{closes}, want: Closing, text: text},
		{name: "no password", mechanism: "PLAIN", response: "\x00guest\x00", can: []string{closes}, want: Closing, text: text},
		{name: "for somebody else", mechanism: "PLAIN", response: "root\x00guest\x00guest", can: []string{closes}, want: Denied},
		{name: "not plain", mechanism: "PLAIN", response: "guest", can: []string{closes}, want: Denied},
		{name: "not amqplain", mechanism: "AMQPLAIN", response: "\x00guest\x00guest", can: []string{closes}, want: Denied},
		{name: "half of amqplain", mechanism: "AMQPLAIN", response: string(plainTable[:15]), can: []string{closes}, want: Denied},
		{name: "unknown mechanism", mechanism: "EXTERNAL", can: []string{closes}, want: Denied},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newProbe(t).start()
			m := startOK(tt.can...)
			m.Mechanism, m.Response = tt.mechanism, tt.response
			p.send(0, m)
			p.state(tt.want)
			switch {
			case tt.want == Handshake:
				expect[*amqp.ConnectionTune](p, 0)
			case tt.text != "":
				p.refused(amqp.ReplyAccessRefused, tt.text)
			default:
				p.silent()
				p.tune()
				p.silent()
			}
		})
	}
}

// Before the login a client's properties took sixteen times their size in memory: a hundred megabytes for a thousand strangers.
func TestClientPropertiesAreBounded(t *testing.T) {
	for _, tt := range []struct {
		fields int
		want   State
	}{{amqp.MaxArguments, Handshake}, {amqp.MaxArguments + 1, Denied}} {
		p := newProbe(t).start()
		m := startOK()
		m.ClientProperties = amqp.Table{{Key: "inner", Value: amqp.Table(make([]amqp.Field, tt.fields-1-len(m.ClientProperties)))}}
		m.ClientProperties = append(startOK().ClientProperties, m.ClientProperties...)
		p.send(0, m)
		p.state(tt.want)
		if n := p.conn.properties.Fields(); n > amqp.MaxArguments {
			t.Errorf("%d fields are kept", n)
		}
	}
}

// The reader used to wait for the check of the password, and of other passwords before it, so that it could not end a slow handshake. Now
// another goroutine checks it, and the client's input is not read in the meantime.
func TestLoginDoesNotBlockTheReader(t *testing.T) {
	p := newProbe(t).start()
	feed := func(ms ...amqp.Method) (consumed, all int) {
		var b []byte
		for _, m := range ms {
			b = amqp.AppendMethod(b, 0, m)
		}
		k := block.New(max(len(b), 1))
		defer k.Release()
		return p.conn.Feed(p.now, k, k.Buf[:copy(k.Buf, b)]), len(b)
	}
	rest := []amqp.Method{&amqp.ConnectionTuneOK{ChannelMax: 1, FrameMax: 8192}, &amqp.ConnectionOpen{VirtualHost: "/"}}
	if consumed, all := feed(append([]amqp.Method{startOK()}, rest...)...); consumed == 0 || consumed == all || !p.conn.LoggingIn() {
		t.Fatalf("consumed %d of %d bytes, logging in: %v", consumed, all, p.conn.LoggingIn())
	}
	login := p.conn.Login()
	if login == nil || p.conn.Login() != nil {
		t.Fatal("there is one login")
	}
	if consumed, _ := feed(rest...); consumed != 0 {
		t.Errorf("consumed %d bytes", consumed)
	}
	p.tick(0)
	p.state(Handshake)
	p.silent()
	login(t.Context())
	p.silent()
	p.tick(0)
	feed(rest...)
	p.feed(nil)
	expect[*amqp.ConnectionTune](p, 0)
	expect[*amqp.ConnectionOpenOK](p, 0)
}

// The error for a client that is refused because of too many logins says to try again later. After an error about a wrong password,
// many clients would never try again.
func TestLoginsThatComeToNothing(t *testing.T) {
	for _, can := range [][]string{{"authentication_failure_close"}, nil} {
		p := newProbe(t).start()
		m := startOK(can...)
		m.Response = "\x00guest\x00not looked at"
		b := amqp.AppendMethod(nil, 0, m)
		k := block.New(len(b))
		p.conn.Feed(p.now, k, k.Buf[:copy(k.Buf, b)])
		k.Release()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p.conn.Login()(ctx)
		p.tick(0)
		p.feed(nil)
		if can == nil {
			p.state(Denied)
			p.silent()
			continue
		}
		p.refused(amqp.ReplyConnectionForced, "CONNECTION_FORCED - too many logins at a time, try again later")
	}
}

// A connection that ends while its login waits stays ended.
func TestLoginAfterTheEnd(t *testing.T) {
	p := newProbe(t).start()
	b := amqp.AppendMethod(nil, 0, startOK())
	k := block.New(len(b))
	p.conn.Feed(p.now, k, k.Buf[:copy(k.Buf, b)])
	k.Release()
	login := p.conn.Login()
	p.conn.Shutdown(p.now, "shutdown")
	login(t.Context())
	p.tick(0)
	p.state(Closed)
	p.feed(nil)
	p.silent()
}

func TestGuestFromElsewhere(t *testing.T) {
	s := testServer(t, func(o *Options) { o.GuestLoopbackOnly = true })
	p := probeOf(t, s, Peer{Address: "192.0.2.1:4711"}).start()
	p.send(0, startOK("authentication_failure_close"))
	p.refused(amqp.ReplyAccessRefused,
		"ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.")

	probeOf(t, s, Peer{Address: "127.0.0.1:4711", Loopback: true}).login()
}

// Strangers that a proxy announces with a loopback address do not use up the login attempts of clients on this machine.
func TestGuessesThroughAProxyOnThisMachine(t *testing.T) {
	s := testServer(t, ownUsers(t))
	for range 11 {
		p := probeOf(t, s, Peer{Address: "127.0.0.1:4711"}).start()
		p.send(0, &amqp.ConnectionStartOK{Mechanism: "PLAIN", Response: "\x00guest\x00wrong", Locale: "en_US"})
		p.state(Denied)
	}
	probeOf(t, s, Peer{Address: "127.0.0.1:4711", Loopback: true}).login()
}

func TestTune(t *testing.T) {
	p := newProbe(t, func(o *Options) { o.ChannelMax, o.FrameMax, o.Heartbeat = 100, 8192, 30 }).start()
	p.send(0, startOK())
	got := *expect[*amqp.ConnectionTune](p, 0)
	if want := (amqp.ConnectionTune{ChannelMax: 100, FrameMax: 8192, Heartbeat: 30}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNegotiation(t *testing.T) {
	tests := []struct {
		channels uint16
		frame    uint32
		text     string // of the refusal
	}{
		{2047, 131072, ""},
		{1, 4096, ""},
		{1, 200000, "negotiated frame_max = 200000 is higher than the maximum allowed value (131072)"},
		{1, 4095, "negotiated frame_max = 4095 is lower than the minimum allowed value (4096)"},
		{1, 0, "negotiated frame_max = 0 is higher than the maximum allowed value (131072)"},
		{3000, 131072, "negotiated channel_max = 3000 is higher than the maximum allowed value (2047)"},
		{0, 131072, "negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.channels, tt.frame), func(t *testing.T) {
			p := newProbe(t).login()
			p.send(0, &amqp.ConnectionTuneOK{ChannelMax: tt.channels, FrameMax: tt.frame}, &amqp.ConnectionOpen{VirtualHost: "/"})
			if tt.text == "" {
				expect[*amqp.ConnectionOpenOK](p, 0)
				return
			}
			p.refused(amqp.ReplyNotAllowed, "NOT_ALLOWED - "+tt.text)
		})
	}
}

func TestHeartbeatIsTheClientsChoice(t *testing.T) {
	for _, seconds := range []uint16{0, 1, 65535} {
		p := newProbe(t).login()
		p.send(0, &amqp.ConnectionTuneOK{ChannelMax: 1, FrameMax: 4096, Heartbeat: seconds})
		if got := p.conn.Heartbeat(); got != seconds {
			t.Errorf("got %d, want %d", got, seconds)
		}
	}
}

func TestVHostRefused(t *testing.T) {
	tests := []struct{ name, vhost, text string }{
		{"not there", "nope", "NOT_ALLOWED - vhost nope not found"},
		{"not permitted", "other", "NOT_ALLOWED - access to vhost 'other' refused for user 'guest'"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newProbe(t).login().tune()
			p.send(0, &amqp.ConnectionOpen{VirtualHost: tt.vhost})
			p.refused(amqp.ReplyNotAllowed, tt.text)
			p.state(Closing)
		})
	}
}

func TestConnectionLimit(t *testing.T) {
	s := testServer(t, func(o *Options) { o.Connections = 1 })
	first := probeOf(t, s, Peer{}).open()

	p := probeOf(t, s, Peer{}).login().tune()
	p.send(0, &amqp.ConnectionOpen{VirtualHost: "/"})
	p.refused(amqp.ReplyNotAllowed, "NOT_ALLOWED - connection refused: node connection limit (1) is reached")

	first.send(0, &amqp.ConnectionClose{ReplyCode: 200})
	probeOf(t, s, Peer{}).open()
	if got := s.openConns.Load(); got != 1 {
		t.Errorf("got %d open connections, want 1", got)
	}
}

// Frames that come too early are refused; before the login without an answer.
func TestHandshakeOutOfOrder(t *testing.T) {
	steps := map[string]func(*probe) *probe{
		"start": (*probe).start,
		"tune":  func(p *probe) *probe { return p.login() },
		"open":  func(p *probe) *probe { return p.login().tune() },
	}
	tests := []struct {
		after string
		m     amqp.Method
		code  uint16
		text  string
	}{
		{"start", &amqp.ConnectionTuneOK{ChannelMax: 1, FrameMax: 4096}, 0, ""},
		{"start", &amqp.ConnectionOpen{VirtualHost: "/"}, 0, ""},
		{"start", &amqp.ConnectionSecureOK{}, 0, ""},
		{"start", &amqp.ConnectionCloseOK{}, 0, ""},
		{"tune", startOK(), 504, "CHANNEL_ERROR - unexpected method in connection state tuning"},
		{"tune", &amqp.ConnectionOpen{VirtualHost: "/"}, 504, "CHANNEL_ERROR - unexpected method in connection state tuning"},
		{"open", &amqp.ConnectionTuneOK{ChannelMax: 1, FrameMax: 4096}, 504, "CHANNEL_ERROR - unexpected method in connection state opening"},
		{"open", &amqp.ConnectionUpdateSecret{}, 504, "CHANNEL_ERROR - unexpected method in connection state opening"},
	}
	for _, tt := range tests {
		t.Run(tt.after+" "+tt.m.Name(), func(t *testing.T) {
			p := steps[tt.after](newProbe(t))
			p.send(0, tt.m)
			if tt.text == "" {
				p.silent()
				p.state(Denied)
				return
			}
			p.refused(tt.code, tt.text)
			p.state(Closing)
		})
	}
}

func TestChannelBeforeOpen(t *testing.T) {
	p := newProbe(t).login().tune()
	p.send(1, &amqp.ChannelOpen{})
	p.refused(505, "UNEXPECTED_FRAME - type 1, all octets = <<0,20,0,10,0>>")
}

func TestHeartbeatInHandshake(t *testing.T) {
	p := newProbe(t).start()
	p.feed(amqp.AppendHeartbeat(nil))
	p.send(0, startOK())
	expect[*amqp.ConnectionTune](p, 0)
}

// Before frame-max is negotiated, a client cannot make the broker accept a large frame.
func TestLargeFrameInHandshake(t *testing.T) {
	p := newProbe(t).start()
	p.feed([]byte{amqp.FrameMethod, 0, 0, 0, 1, 0, 0})
	p.silent()
	p.state(Denied)

	p = newProbe(t).start()
	m := startOK()
	m.ClientProperties = append(m.ClientProperties, amqp.Field{Key: "story", Value: strings.Repeat("x", 7000)})
	p.send(0, m)
	expect[*amqp.ConnectionTune](p, 0)
}

func TestCloseInHandshake(t *testing.T) {
	for _, p := range []*probe{newProbe(t).start(), newProbe(t).login(), newProbe(t).login().tune()} {
		p.send(0, &amqp.ConnectionClose{ReplyCode: 200, ReplyText: "changed my mind"})
		expect[*amqp.ConnectionCloseOK](p, 0)
		p.state(Closing)
	}
}
