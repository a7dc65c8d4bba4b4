package session

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

// rawFrame returns a frame as a broken peer writes it.
func rawFrame(kind byte, channel uint16, payload string) []byte {
	b := binary.BigEndian.AppendUint16([]byte{kind}, channel)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(append(b, payload...), 0xCE)
}

func methodFrame(channel uint16, m amqp.Method) []byte { return amqp.AppendMethod(nil, channel, m) }

// Unexpected frames on an open connection get the answers of RabbitMQ 3.10, to the letter.
func TestConnectionErrors(t *testing.T) {
	header := "\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	tests := []struct {
		name  string
		frame []byte
		code  uint16
		text  string
		in    [2]uint16
	}{
		{"start-ok again", methodFrame(0, startOK()), 504, "CHANNEL_ERROR - unexpected method in connection state running", [2]uint16{10, 11}},
		{"tune-ok again", methodFrame(0, &amqp.ConnectionTuneOK{}), 504, "CHANNEL_ERROR - unexpected method in connection state running", [2]uint16{10, 31}},
		{"open again", methodFrame(0, &amqp.ConnectionOpen{}), 504, "CHANNEL_ERROR - unexpected method in connection state running", [2]uint16{10, 40}},
		{"close-ok unasked", methodFrame(0, &amqp.ConnectionCloseOK{}), 504, "CHANNEL_ERROR - unexpected method in connection state running", [2]uint16{10, 51}},
		{"blocked", methodFrame(0, &amqp.ConnectionBlocked{}), 504, "CHANNEL_ERROR - unexpected method in connection state running", [2]uint16{10, 60}},
		{"channel.open on 0", methodFrame(0, &amqp.ChannelOpen{}), 504, "CHANNEL_ERROR - unexpected method in connection state running", [2]uint16{20, 10}},
		{"basic.publish on 0", methodFrame(0, &amqp.BasicPublish{}), 504, "CHANNEL_ERROR - unexpected method in connection state running", [2]uint16{60, 40}},
		{"header on 0", rawFrame(2, 0, header), 505, "UNEXPECTED_FRAME - type 2, all octets = <<0,60,0,0,0,0,0,0,0,0,0,0,0,0>>", [2]uint16{}},
		{"body on 0", rawFrame(3, 0, "abc"), 505, `UNEXPECTED_FRAME - type 3, all octets = <<"abc">>`, [2]uint16{}},
		{"queue.declare, channel not open", methodFrame(1, &amqp.QueueDeclare{}), 504, "CHANNEL_ERROR - expected 'channel.open'", [2]uint16{50, 10}},
		{"channel.close, channel not open", methodFrame(1, &amqp.ChannelClose{}), 504, "CHANNEL_ERROR - expected 'channel.open'", [2]uint16{20, 40}},
		{"connection.close, channel not open", methodFrame(1, &amqp.ConnectionClose{}), 504, "CHANNEL_ERROR - expected 'channel.open'", [2]uint16{10, 50}},
		{"header, channel not open", rawFrame(2, 1, header), 505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead", [2]uint16{}},
		{"body, channel not open", rawFrame(3, 1, "abc"), 505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead", [2]uint16{}},
		{"heartbeat on a channel", rawFrame(8, 1, ""), 505, "UNEXPECTED_FRAME - type 8, all octets = <<>>", [2]uint16{}},
		{"heartbeat with payload", rawFrame(8, 0, "x"), 501, `FRAME_ERROR - type 8, all octets = <<"x">>: unknown_frame`, [2]uint16{}},
		{"unknown frame", rawFrame(9, 1, "hello"), 501, `FRAME_ERROR - type 9, all octets = <<"hello">>: unknown_frame`, [2]uint16{}},
		{"no end octet", []byte{8, 0, 0, 0, 0, 0, 0, 0}, 501, "FRAME_ERROR - type 8, all octets = <<>>: {invalid_frame_end_marker,0}", [2]uint16{}},
		{"frame too large", []byte{1, 0, 0, 0, 2, 0, 1}, 501, "FRAME_ERROR - type 1, all octets = <<>>: {frame_too_large,131073,131064}", [2]uint16{}},
		{"unknown class", rawFrame(1, 0, "\x00\x63\x00\x01"), 503, "COMMAND_INVALID - unknown class 99 (method 1)", [2]uint16{99, 1}},
		{"unknown method", rawFrame(1, 0, "\x00\x0a\x00\x63"), 540, "NOT_IMPLEMENTED - unknown method 99 of class connection", [2]uint16{10, 99}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newProbe(t).open()
			p.feed(tt.frame)
			m := expect[*amqp.ConnectionClose](p, 0)
			if m.ReplyCode != tt.code || m.ReplyText != tt.text {
				t.Errorf("connection.close:\n got %d %s\nwant %d %s", m.ReplyCode, m.ReplyText, tt.code, tt.text)
			}
			if got := [2]uint16{m.ClassID, m.MethodID}; got != tt.in {
				t.Errorf("caused by: got %v, want %v", got, tt.in)
			}
			if got := p.conn.State(); got != Closing && got != Closed {
				t.Errorf("got state %d after the error", got)
			}
			p.feed(rawFrame(3, 1, "ignored from now on"))
			p.silent()
		})
	}
}

// A frame over frame-max is refused when its size is known. The broker neither waits for the rest nor allocates for it.
func TestLargeFrame(t *testing.T) {
	p := newProbe(t).login()
	p.send(0, &amqp.ConnectionTuneOK{ChannelMax: 1, FrameMax: 4096}, &amqp.ConnectionOpen{VirtualHost: "/"})
	expect[*amqp.ConnectionOpenOK](p, 0)
	p.feed([]byte{amqp.FrameBody, 0, 1, 0xff, 0xff, 0xff, 0xff})
	p.refused(501, "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,4294967295,4088}")

	// The start of the next frame is unknown, so the connection does not wait for close-ok.
	p.state(Closed)
}

// A client that closed the connection may close it again, and gets an answer, as from RabbitMQ. The broker used to shut its sending side at once.
func TestCloseByClient(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.send(0, &amqp.ConnectionClose{ReplyCode: 200, ReplyText: "bye"})
	expect[*amqp.ConnectionCloseOK](p, 0)
	p.state(Closing)
	p.send(1, &amqp.QueueDeclare{})
	p.silent()
	for range 2 {
		p.send(0, &amqp.ConnectionClose{ReplyCode: 200, ReplyText: "bye"})
		expect[*amqp.ConnectionCloseOK](p, 0)
	}
	p.send(0, &amqp.ConnectionCloseOK{})
	p.state(Closed)
}

// By the time a client reads connection.close, the connection is in no list any more, and its exclusive queues are deleted.
func TestClosedConnectionHoldsNothing(t *testing.T) {
	s := testServer(t)
	p, other := probeOf(t, s, Peer{}).open().channel(1), probeOf(t, s, Peer{}).open().channel(1)
	do[*amqp.QueueDeclareOK](p, 1, &amqp.QueueDeclare{Queue: "mine", Exclusive: true})
	if !p.conn.IsOpen() {
		t.Error("an open connection is not listed")
	}
	p.send(0, &amqp.ConnectionOpen{})
	expect[*amqp.ConnectionClose](p, 0)
	if p.conn.IsOpen() {
		t.Error("a closed connection is listed")
	}
	do[*amqp.QueueDeclareOK](other, 1, &amqp.QueueDeclare{Queue: "mine", Exclusive: true})
}

func TestCloseByServer(t *testing.T) {
	p := newProbe(t).open()
	p.send(0, &amqp.ConnectionOpen{})
	expect[*amqp.ConnectionClose](p, 0)
	p.send(0, &amqp.ConnectionOpen{})
	p.send(3, &amqp.ChannelOpen{})
	p.silent()
	p.send(0, &amqp.ConnectionCloseOK{})
	p.state(Closed)
}

func TestCloseByBoth(t *testing.T) {
	p := newProbe(t).open()
	p.conn.Shutdown(p.now, "shutdown")
	p.send(0, &amqp.ConnectionClose{ReplyCode: 200})
	p.refused(320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'")
	expect[*amqp.ConnectionCloseOK](p, 0)
	p.state(Closing)
	p.send(0, &amqp.ConnectionCloseOK{})
	p.state(Closed)
}

func TestShutdownInHandshake(t *testing.T) {
	for name, p := range map[string]*probe{"silent": newProbe(t), "starting": newProbe(t).start()} {
		p.conn.Shutdown(p.now, "shutdown")
		p.feed(nil)
		p.silent()
		if got := p.conn.State(); got != Closed {
			t.Errorf("%s: got state %d, want closed", name, got)
		}
	}
	p := newProbe(t).login()
	p.conn.Shutdown(p.now, "shutdown")
	p.feed(nil)
	p.refused(320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'")
}

func TestUpdateSecret(t *testing.T) {
	p := newProbe(t).open()
	p.send(0, &amqp.ConnectionUpdateSecret{NewSecret: "s", Reason: "due"})
	expect[*amqp.ConnectionUpdateSecretOK](p, 0)
}

func TestChannelMax(t *testing.T) {
	p := newProbe(t).login()
	p.send(0, &amqp.ConnectionTuneOK{ChannelMax: 10, FrameMax: 4096}, &amqp.ConnectionOpen{VirtualHost: "/"})
	expect[*amqp.ConnectionOpenOK](p, 0)
	for id := range uint16(10) {
		p.channel(id + 1)
	}
	p.send(11, &amqp.ChannelOpen{})
	p.refused(530, "NOT_ALLOWED - number of channels opened (10) has reached the negotiated channel_max (10)")
}

func TestChannelNumberOverMax(t *testing.T) {
	p := newProbe(t).login()
	p.send(0, &amqp.ConnectionTuneOK{ChannelMax: 10, FrameMax: 4096}, &amqp.ConnectionOpen{VirtualHost: "/"})
	expect[*amqp.ConnectionOpenOK](p, 0)
	p.send(65535, &amqp.ChannelOpen{})
	p.refused(530, "NOT_ALLOWED - channel 65535 is higher than the negotiated channel_max (10)")
}

func TestThousandChannels(t *testing.T) {
	p := newProbe(t).open()
	var b []byte
	for id := range uint16(1000) {
		b = amqp.AppendMethod(b, id+1, &amqp.ChannelOpen{})
	}
	p.feed(b)
	for id := range uint16(1000) {
		expect[*amqp.ChannelOpenOK](p, id+1)
	}
	p.send(0, &amqp.ConnectionClose{ReplyCode: 200})
	expect[*amqp.ConnectionCloseOK](p, 0)
}

// The result does not depend on how the input is divided into reads.
func TestFramesInPieces(t *testing.T) {
	b := []byte(amqp.ProtocolHeader)
	b = amqp.AppendMethod(b, 0, startOK())
	b = amqp.AppendMethod(b, 0, &amqp.ConnectionTuneOK{ChannelMax: 7, FrameMax: 4096})
	b = amqp.AppendMethod(b, 0, &amqp.ConnectionOpen{VirtualHost: "/"})
	b = amqp.AppendMethod(b, 7, &amqp.ChannelOpen{})
	whole := newProbe(t)
	whole.feed(b)
	for size := 1; size < len(b); size += 1 + size/4 {
		p := newProbe(t)
		for rest := b; len(rest) > 0; {
			n := min(size, len(rest))
			p.feed(rest[:n])
			rest = rest[n:]
		}
		if !bytes.Equal(p.out, whole.out) {
			t.Errorf("in pieces of %d: got %q, want %q", size, p.out, whole.out)
		}
	}
}

func TestBlocked(t *testing.T) {
	p := newProbe(t).open("connection.blocked")
	p.conn.Block("low on memory")
	p.conn.Unblock()
	p.feed(nil)
	if m := expect[*amqp.ConnectionBlocked](p, 0); m.Reason != "low on memory" {
		t.Errorf("got reason %q", m.Reason)
	}
	expect[*amqp.ConnectionUnblocked](p, 0)

	p = newProbe(t).open()
	p.conn.Block("low on memory")
	p.conn.Unblock()
	p.feed(nil)
	p.silent() // the client did not say that it knows the methods
}

func TestHeartbeat(t *testing.T) {
	p := newProbe(t).open()
	p.conn.SendHeartbeat()
	p.conn.SendHeartbeat() // one is enough while it waits to be written
	p.feed(nil)
	if want := amqp.AppendHeartbeat(nil); !bytes.Equal(p.out, want) {
		t.Errorf("got %q, want %q", p.out, want)
	}
}
