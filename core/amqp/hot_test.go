package amqp

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func args(m Method) []byte {
	var c codec
	m.fields(&c)
	return c.dst
}

func TestParsePublish(t *testing.T) {
	for _, c := range []BasicPublish{
		{},
		{Exchange: "in", RoutingKey: "a.b"},
		{RoutingKey: "q", Mandatory: true},
		{Exchange: "in", Immediate: true},
		{Exchange: strings.Repeat("e", 255), RoutingKey: strings.Repeat("k", 255), Mandatory: true, Immediate: true},
	} {
		exchange, key, mandatory, immediate, err := ParsePublish(args(&c))
		if err != nil || string(exchange) != c.Exchange || string(key) != c.RoutingKey || mandatory != c.Mandatory || immediate != c.Immediate {
			t.Errorf("%+v: got %q %q %t %t, error %v", c, exchange, key, mandatory, immediate, err)
		}
	}
}

func TestSettlementsParse(t *testing.T) {
	for i := range 4 {
		a, b := i&1 != 0, i&2 != 0
		if tag, multiple, err := ParseAck(args(&BasicAck{DeliveryTag: 1 << 40, Multiple: a})); tag != 1<<40 || multiple != a || err != nil {
			t.Errorf("ack: got %d %t, error %v", tag, multiple, err)
		}
		if tag, multiple, requeue, err := ParseNack(args(&BasicNack{DeliveryTag: 7, Multiple: a, Requeue: b})); tag != 7 || multiple != a || requeue != b || err != nil {
			t.Errorf("nack: got %d %t %t, error %v", tag, multiple, requeue, err)
		}
		if tag, requeue, err := ParseReject(args(&BasicReject{DeliveryTag: 9, Requeue: a})); tag != 9 || requeue != a || err != nil {
			t.Errorf("reject: got %d %t, error %v", tag, requeue, err)
		}
	}
}

// The short cuts refuse the same input as the generated code, with the same texts.
func TestHotPathsRefuseWhatParseMethodRefuses(t *testing.T) {
	for _, m := range []Method{
		&BasicPublish{Exchange: "in", RoutingKey: "key"}, &BasicAck{DeliveryTag: 1}, &BasicNack{DeliveryTag: 2}, &BasicReject{DeliveryTag: 3},
	} {
		whole := args(m)
		for n := range len(whole) + 2 {
			in := append(slices.Clip(whole), 0)
			sameVerdict(t, m, in[:min(n, len(in))])
		}
	}
}

// sameVerdict compares the short cut for m's kind of method with ParseMethod on the same arguments.
func sameVerdict(t *testing.T, m Method, in []byte) {
	t.Helper()
	class, id := m.ID()
	payload := append([]byte{byte(class >> 8), byte(class), byte(id >> 8), byte(id)}, in...)
	_, want := ParseMethod(payload)
	var got error
	switch m.(type) {
	case *BasicPublish:
		_, _, _, _, got = ParsePublish(in)
	case *BasicAck:
		_, _, got = ParseAck(in)
	case *BasicNack:
		_, _, _, got = ParseNack(in)
	case *BasicReject:
		_, _, got = ParseReject(in)
	}
	if !reflect.DeepEqual(protocolError(got), protocolError(want)) {
		t.Errorf("%s %x: got error %v, want %v", m.Name(), in, got, want)
	}
}

func TestHotAppendsWriteWhatAppendMethodWrites(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, m := range []BasicDeliver{
		{},
		{ConsumerTag: "amq.ctag-1", DeliveryTag: 1 << 50, Redelivered: true, Exchange: "in", RoutingKey: "a.b.c"},
		{ConsumerTag: long[:255], Exchange: long[:255], RoutingKey: long[:255]},
		{ConsumerTag: long},
		{Exchange: long},
		{RoutingKey: long},
	} {
		got := AppendDeliver([]byte("x"), 513, m.ConsumerTag, m.DeliveryTag, m.Redelivered, []byte(m.Exchange), []byte(m.RoutingKey))
		if want := AppendMethod([]byte("x"), 513, &m); !bytes.Equal(got, want) {
			t.Errorf("deliver: got %x, want %x", got, want)
		}
	}
	for i := range 4 {
		a, b := i&1 != 0, i&2 != 0
		if got, want := AppendAck(nil, 9, 1<<33, a), AppendMethod(nil, 9, &BasicAck{DeliveryTag: 1 << 33, Multiple: a}); !bytes.Equal(got, want) {
			t.Errorf("ack: got %x, want %x", got, want)
		}
		if got, want := AppendNack(nil, 9, 5, a, b), AppendMethod(nil, 9, &BasicNack{DeliveryTag: 5, Multiple: a, Requeue: b}); !bytes.Equal(got, want) {
			t.Errorf("nack: got %x, want %x", got, want)
		}
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	publish, ack, nack, reject := args(&BasicPublish{Exchange: "in", RoutingKey: "key"}), args(&BasicAck{}), args(&BasicNack{}), args(&BasicReject{})
	noAllocs(t, "ParsePublish", func() { _, _, _, _, _ = ParsePublish(publish) })
	noAllocs(t, "ParseAck", func() { _, _, _ = ParseAck(ack) })
	noAllocs(t, "ParseNack", func() { _, _, _, _ = ParseNack(nack) })
	noAllocs(t, "ParseReject", func() { _, _, _ = ParseReject(reject) })
	buf, body, props := make([]byte, 0, 16<<10), make([]byte, 8<<10), richProps().Append(nil)
	exchange, key := []byte("in"), []byte("a.b")
	noAllocs(t, "delivery", func() {
		b := AppendDeliver(buf, 1, "ctag", 1, false, exchange, key)
		b = AppendContentHeader(b, 1, uint64(len(body)), props)
		b = AppendBody(b, 1, body, FrameMinSize)
		b = AppendAck(b, 1, 1, true)
		AppendNack(b, 1, 1, true, false)
	})
	header := append(make([]byte, contentHead), props...)
	noAllocs(t, "ParseContentHeader", func() { _, _ = ParseContentHeader(header) })
	var x PropIndex
	noAllocs(t, "ScanProps", func() { x, _ = ScanProps(props) })
	noAllocs(t, "accessors", func() {
		x.Expiration(props)
		x.Headers(props).LookupRaw("missing")
		x.Headers(props).LookupBytes("k")
	})
	edit := PropEdit{Headers: RawTable{}, ReplyTo: "elsewhere", DropExpiration: true}
	noAllocs(t, "RewriteProps", func() { RewriteProps(buf, props, x, edit) })
}
