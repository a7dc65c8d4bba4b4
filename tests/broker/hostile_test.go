package broker

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/tests/process"
)

// target is the address of a broker for this test: of its own, or the one to compare with, which all tests share.
func target(t *testing.T) string {
	t.Helper()
	if *other == "" {
		t.Parallel()
		return process.Start(t, "limits: {handshake-timeout: 10m}").AMQP // a refused login takes its time, more of it on a busy machine
	}
	uri, err := amqp091.ParseURI(*other)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))
}

// bystander is a client that has nothing to do with it.
type bystander struct{ p *peer }

func newBystander(t *testing.T, address string) *bystander {
	t.Helper()
	b := &bystander{p: login(t, address).channel(1)}
	b.p.method(1, &amqp.QueueDeclare{Queue: "bystander", Exclusive: true})
	expect[*amqp.QueueDeclareOK](b.p, 1)
	return b
}

// check publishes a message and gets it.
func (b *bystander) check() {
	b.p.t.Helper()
	b.p.send(publishing(1, "bystander", []byte("all is well")))
	b.p.method(1, &amqp.BasicGet{Queue: "bystander", NoAck: true})
	expect[*amqp.BasicGetOK](b.p, 1)
	for range 2 {
		if _, ok := b.p.frame(); !ok {
			b.p.t.Fatal("the bystander was cut off")
		}
	}
}

// Frames that a connection does not survive, and what it is told. Nobody else notices.
func TestFramesThatEndAConnection(t *testing.T) {
	address := target(t)
	witness := newBystander(t, address)
	publish := amqp.AppendMethod(nil, 1, &amqp.BasicPublish{RoutingKey: "q"})
	header := amqp.AppendContentHeader(nil, 1, 3, []byte{0, 0})
	tests := []struct {
		name string
		send [][]byte
		code uint16
		text string
	}{
		{
			"larger than frame-max",
			[][]byte{{1, 0, 1, 0x7f, 0xff, 0xff, 0xff}},
			501, "FRAME_ERROR - type 1, all octets = <<>>: {frame_too_large,2147483647,131064}",
		},
		{
			"one byte larger than frame-max",
			[][]byte{{3, 0, 1, 0, 2, 0, 1}},
			501, "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,131073,131064}",
		},
		{
			"no frame end",
			[][]byte{{1, 0, 1, 0, 0, 0, 4, 0, 20, 0, 10, 0}},
			501, "FRAME_ERROR - type 1, all octets = <<0,20,0,10>>: {invalid_frame_end_marker,0}",
		},
		{
			"no such frame type",
			[][]byte{raw(7, 1, "what")},
			501, `FRAME_ERROR - type 7, all octets = <<"what">>: unknown_frame`,
		},
		{
			"no such class",
			[][]byte{raw(1, 1, "\x00\xff\x00\x0a")},
			503, "COMMAND_INVALID - unknown class 255 (method 10)",
		},
		{
			"no such method",
			[][]byte{raw(1, 1, "\x00\x3c\x00\xff")},
			540, "NOT_IMPLEMENTED - unknown method 255 of class basic",
		},
		{
			"a method of the broker",
			[][]byte{amqp.AppendMethod(nil, 1, &amqp.QueueDeclareOK{Queue: "q"})},
			503, "COMMAND_INVALID - unimplemented method",
		},
		{
			"cut short",
			[][]byte{raw(1, 1, "\x00\x32\x00\x0a\x00")},
			502, "SYNTAX_ERROR - ticket: short needs 2 octets, 1 left",
		},
		{
			"a string longer than the frame",
			[][]byte{raw(1, 1, "\x00\x32\x00\x0a\x00\x00\xffq")},
			502, "SYNTAX_ERROR - queue: shortstr needs 255 octets, 1 left",
		},
		{
			"a table longer than the frame",
			[][]byte{raw(1, 1, "\x00\x32\x00\x0a\x00\x00\x01q\x00\xff\xff\xff\xffx")},
			502, "SYNTAX_ERROR - arguments: table of 4294967295 octets, 1 left",
		},
		{
			"a header without a method",
			[][]byte{header},
			505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead",
		},
		{
			"a body without a method",
			[][]byte{raw(3, 1, "abc")},
			505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead",
		},
		{
			"a body without a header",
			[][]byte{publish, raw(3, 1, "abc")},
			505, "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
		},
		{
			"a method instead of a header",
			[][]byte{publish, publish},
			505, "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
		},
		{
			"a method instead of a body",
			[][]byte{publish, header, publish},
			505, "UNEXPECTED_FRAME - expected content body, got non content body frame instead",
		},
		{
			"a header for another class",
			[][]byte{publish, raw(2, 1, "\x00\x14\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00")},
			505, "UNEXPECTED_FRAME - expected content header for class 60, got one for class 20 instead",
		},
		{
			"more body than announced",
			[][]byte{publish, header, raw(3, 1, "abcd")},
			501, "FRAME_ERROR - content body frame exceeds remaining content size",
		},
		{
			"properties cut short",
			[][]byte{publish, raw(2, 1, "\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03\x80\x00\x20text")},
			502, "SYNTAX_ERROR - content-type: 33 octets needed, 5 left",
		},
		{
			"a channel that is not open",
			[][]byte{amqp.AppendMethod(nil, 2, &amqp.BasicQos{})},
			504, "CHANNEL_ERROR - expected 'channel.open'",
		},
		{
			"a channel that is open",
			[][]byte{amqp.AppendMethod(nil, 1, &amqp.ChannelOpen{})},
			504, "CHANNEL_ERROR - second 'channel.open' seen",
		},
		{
			"channel 0",
			[][]byte{amqp.AppendMethod(nil, 0, &amqp.ChannelOpen{})},
			504, "CHANNEL_ERROR - unexpected method in connection state running",
		},
		{
			"a second handshake",
			[][]byte{amqp.AppendMethod(nil, 0, &amqp.ConnectionOpen{VirtualHost: "/"})},
			504, "CHANNEL_ERROR - unexpected method in connection state running",
		},
		{
			"a connection method on a channel",
			[][]byte{amqp.AppendMethod(nil, 1, &amqp.ConnectionOpen{VirtualHost: "/"})},
			503, "COMMAND_INVALID - unimplemented method",
		},
		{
			"a table in a table in a table…",
			[][]byte{bomb(200)},
			502, "SYNTAX_ERROR - arguments: " + strings.Repeat(`field "t": `, 14) + "tables and arrays nested more than 32 deep",
		},
		{
			"a channel above the maximum",
			[][]byte{amqp.AppendMethod(nil, 2048, &amqp.ChannelOpen{})},
			530, "NOT_ALLOWED - channel 2048 is higher than the negotiated channel_max (2047)",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := login(t, address).channel(1)
			for _, b := range tt.send {
				p.send(b)
			}
			p.refused(tt.code, tt.text)
			witness.check()
		})
	}
}

// bomb is a queue.declare whose arguments are nested.
func bomb(depth int) []byte {
	table := ""
	for range depth {
		inner := "\x01tF" + size(len(table)) + table
		table = inner
	}
	return raw(1, 1, "\x00\x32\x00\x0a\x00\x00\x01q\x00"+size(len(table))+table)
}

func size(n int) string { return string([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) }
