package broker

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/tests/process"
)

// Whoever does not get past the handshake is cut off, and nobody else notices.
func TestHalfAHandshake(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "limits: {handshake-timeout: 3s}")
	witness := newBystander(t, b.AMQP)
	before := b.Resident()
	var silent []*peer
	for range 100 {
		silent = append(silent, connect(t, b.AMQP))
		p := connect(t, b.AMQP)
		p.send([]byte(amqp.ProtocolHeader)[:4])
		silent = append(silent, p)
		p = connect(t, b.AMQP)
		p.send(append([]byte(amqp.ProtocolHeader), amqp.AppendMethod(nil, 0, startOK("PLAIN", "\x00guest\x00guest"))...))
		silent = append(silent, p)
	}
	witness.check()
	for _, p := range silent {
		for p.fill() { // what the broker had to say before it closed the socket
		}
	}
	witness.check()
	settle(t, b, before)
}

// A client of another protocol, or of another version, is told which one is spoken here [AMQP 4.2.2].
func TestWrongProtocol(t *testing.T) {
	address := target(t)
	for _, hello := range []string{"AMQP\x03\x01\x00\x00", "AMQP\x01\x01\x08\x00", "GET / HTTP/1.1\r\n\r\n"} {
		p := connect(t, address)
		p.send([]byte(hello))
		for p.fill() {
		}
		if got := string(p.in); got != amqp.ProtocolHeader {
			t.Errorf("the answer to %q is %q, want %q", hello, got, amqp.ProtocolHeader)
		}
	}
}

func TestLogin(t *testing.T) {
	address := target(t)
	const refused = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
	amqplain := "\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x05guest"
	tests := []struct {
		name                string
		mechanism, response string
		code                uint16 // 0: let in
		text                string
	}{
		{name: "PLAIN", mechanism: "PLAIN", response: "\x00guest\x00guest"},
		{name: "AMQPLAIN", mechanism: "AMQPLAIN", response: amqplain},
		{name: "wrong password", mechanism: "PLAIN", response: "\x00guest\x00tseug", code: 403, text: refused},
		{name: "nobody", mechanism: "PLAIN", response: "\x00nobody\x00guest", code: 403, text: refused},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := connect(t, address)
			p.send([]byte(amqp.ProtocolHeader))
			expect[*amqp.ConnectionStart](p, 0)
			p.method(0, startOK(tt.mechanism, tt.response, "authentication_failure_close"))
			if tt.code != 0 {
				p.refused(tt.code, tt.text)
				return
			}
			expect[*amqp.ConnectionTune](p, 0)
		})
	}
}

// A client that would not understand a refusal is left alone for a while, and then cut off.
func TestLoginRefusedInSilence(t *testing.T) {
	p := connect(t, target(t))
	p.send([]byte(amqp.ProtocolHeader))
	expect[*amqp.ConnectionStart](p, 0)
	p.method(0, startOK("PLAIN", "\x00guest\x00tseug"))
	p.end()
}

func TestTune(t *testing.T) {
	address := target(t)
	tests := []struct {
		name string
		m    *amqp.ConnectionTuneOK
		text string // "": accepted
	}{
		{"smallest frames", &amqp.ConnectionTuneOK{ChannelMax: 1, FrameMax: 4096}, ""},
		{"frames too small", &amqp.ConnectionTuneOK{ChannelMax: 1, FrameMax: 4095}, "NOT_ALLOWED - negotiated frame_max = 4095 is lower than the minimum allowed value (4096)"},
		{"frames too large", &amqp.ConnectionTuneOK{ChannelMax: 1, FrameMax: 131073}, "NOT_ALLOWED - negotiated frame_max = 131073 is higher than the maximum allowed value (131072)"},
		{"too many channels", &amqp.ConnectionTuneOK{ChannelMax: 2048, FrameMax: 131072}, "NOT_ALLOWED - negotiated channel_max = 2048 is higher than the maximum allowed value (2047)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := connect(t, address)
			p.start()
			p.method(0, tt.m)
			if tt.text != "" {
				p.refused(530, tt.text)
				return
			}
			p.method(0, &amqp.ConnectionOpen{VirtualHost: "/"})
			expect[*amqp.ConnectionOpenOK](p, 0)
		})
	}
}

func TestVHostNotThere(t *testing.T) {
	p := connect(t, target(t))
	p.start()
	p.method(0, &amqp.ConnectionTuneOK{ChannelMax: 2047, FrameMax: 131072})
	p.method(0, &amqp.ConnectionOpen{VirtualHost: "elsewhere"})
	p.refused(530, "NOT_ALLOWED - vhost elsewhere not found")
}

// A broker that listens where others can reach it lets the user guest in from its own machine only.
func TestGuestFromElsewhere(t *testing.T) {
	t.Parallel()
	host := foreignAddress(t)
	b := process.Start(t, "", "--amqp", net.JoinHostPort(host, "0"))
	_, err := process.Dial(b.URL())
	var e *amqp091.Error
	if !errors.As(err, &e) || e.Code != amqp091.AccessRefused {
		t.Errorf("from %s: got %v, want 403", host, err)
	}
}

// foreignAddress is an address of this machine under which it is not known to be itself.
func foreignAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but those of the loopback interface")
	return ""
}

// A connection on which nothing comes is kept alive by heartbeats from the broker, and given up when none come from the client.
func TestHeartbeats(t *testing.T) {
	p := connect(t, target(t))
	p.start()
	p.method(0, &amqp.ConnectionTuneOK{ChannelMax: 1, FrameMax: 131072, Heartbeat: 1})
	p.method(0, &amqp.ConnectionOpen{VirtualHost: "/"})
	expect[*amqp.ConnectionOpenOK](p, 0)
	beats := 0
	for began := time.Now(); ; beats++ {
		f, ok := p.frame()
		if !ok {
			if age := time.Since(began); age < time.Second {
				t.Errorf("given up after %v", age)
			}
			break
		}
		if f.Type != amqp.FrameHeartbeat {
			t.Errorf("got a frame of type %d", f.Type)
		}
	}
	if beats == 0 {
		t.Error("no heartbeats")
	}
}

func TestUpdateSecret(t *testing.T) {
	p := login(t, target(t))
	p.method(0, &amqp.ConnectionUpdateSecret{NewSecret: "new", Reason: "the old one ran out"})
	expect[*amqp.ConnectionUpdateSecretOK](p, 0)
}

// The connections that are there do not keep the limit from holding.
func TestConnectionLimit(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "limits: {connections: 1}")
	first := login(t, b.AMQP)
	p := connect(t, b.AMQP)
	p.start()
	p.method(0, &amqp.ConnectionTuneOK{ChannelMax: 2047, FrameMax: 131072})
	p.method(0, &amqp.ConnectionOpen{VirtualHost: "/"})
	p.refused(530, "NOT_ALLOWED - connection refused: node connection limit (1) is reached")
	if r := b.Await("connection error"); r["state"] != "opening" {
		t.Errorf("the log says %v, want state opening", r)
	}
	first.method(0, &amqp.ConnectionClose{ReplyCode: 200})
	expect[*amqp.ConnectionCloseOK](first, 0)
	login(t, b.AMQP)
}
