package amqp

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// eachMethod calls f with a zero value of every method of the protocol.
func eachMethod(f func(m Method)) {
	for class := range uint16(128) {
		for id := range uint16(256) {
			if m := newMethod(class, id); m != nil {
				f(m)
			}
		}
	}
}

// fill gives every field of a generated struct a value of its own.
func fill(m any) {
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Struct: // noArguments
		case reflect.Bool:
			f.SetBool(i%2 == 0)
		case reflect.String:
			f.SetString(v.Type().Field(i).Name)
		case reflect.Slice:
			f.Set(reflect.ValueOf(Table{{"key", "value"}, {"n", int32(i)}}))
		default:
			f.SetUint(uint64(i) + 100)
		}
	}
}

func TestEveryMethodSurvivesTheWire(t *testing.T) {
	count := 0
	eachMethod(func(m Method) {
		count++
		fill(m)
		b := AppendMethod([]byte("before"), 0x0203, m)
		f, n, err := NextFrame(b[6:], FrameMinSize)
		if err != nil || n != len(b)-6 || f.Type != FrameMethod || f.Channel != 0x0203 {
			t.Fatalf("%s: frame %+v, %d bytes, error %v", m.Name(), f, n, err)
		}
		got, err := ParseMethod(f.Payload)
		if err != nil {
			t.Fatalf("%s: %v", m.Name(), err)
		}
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%s: got %+v, want %+v", m.Name(), got, m)
		}
	})
	if count != 66 {
		t.Errorf("got %d methods, want 66", count)
	}
}

func TestEveryMethodNoticesMissingAndLeftoverOctets(t *testing.T) {
	eachMethod(func(m Method) {
		fill(m)
		b := AppendMethod(nil, 1, m)
		payload := b[frameHead : len(b)-1]
		for n := methodIDSize; n < len(payload); n++ {
			_, err := ParseMethod(payload[:n])
			if err == nil {
				t.Errorf("%s: %d of %d octets are enough", m.Name(), n, len(payload))
			}
			isProtocolError(t, err)
		}
		class, id := m.ID()
		_, err := ParseMethod(append(slices.Clip(payload), 0))
		wantError(t, err, ReplySyntaxError, "SYNTAX_ERROR - 1 octets after the last argument")
		if e := protocolError(err); e.Class != class || e.Method != id {
			t.Errorf("%s: the error blames %d, %d", m.Name(), e.Class, e.Method)
		}
	})
}

func TestInfo(t *testing.T) {
	for _, c := range []struct {
		class, method uint16
		want          MethodInfo
	}{
		{ClassConnection, MethodConnectionStartOK, MethodInfo{Name: "connection.start-ok"}},
		{ClassExchange, MethodExchangeUnbindOK, MethodInfo{Name: "exchange.unbind-ok"}},
		{ClassQueue, MethodQueueDeclare, MethodInfo{Name: "queue.declare", Synchronous: true}},
		{ClassBasic, MethodBasicPublish, MethodInfo{Name: "basic.publish", Content: true}},
		{ClassBasic, MethodBasicGetOK, MethodInfo{Name: "basic.get-ok", Content: true}},
		{ClassConfirm, MethodConfirmSelect, MethodInfo{Name: "confirm.select", Synchronous: true}},
	} {
		if got, ok := Info(c.class, c.method); got != c.want || !ok {
			t.Errorf("(%d, %d): got %+v %t, want %+v", c.class, c.method, got, ok, c.want)
		}
	}
	if _, ok := Info(ClassBasic, 99); ok {
		t.Error("there is a basic method 99")
	}
	eachMethod(func(m Method) {
		if info, ok := Info(m.ID()); !ok || info.Name != m.Name() {
			t.Errorf("%s: got %+v", m.Name(), info)
		}
	})
}

func TestParseMethodRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		payload string
		code    uint16
		text    string
	}{
		{"no ids", "\x00\x3c\x00", ReplySyntaxError, "SYNTAX_ERROR - method frame of 3 octets: at least 4 expected"},
		{"unknown class", "\x00\x63\x00\x0a", ReplyCommandInvalid, "COMMAND_INVALID - unknown class 99 (method 10)"},
		{"unknown method", "\x00\x3c\x00\x63", ReplyNotImplemented, "NOT_IMPLEMENTED - unknown method 99 of class basic"},
		{
			"string longer than the frame", "\x00\x32\x00\x0a\x00\x00\x05a",
			ReplySyntaxError, "SYNTAX_ERROR - queue: shortstr needs 5 octets, 1 left",
		},
		{
			"long string longer than any frame", "\x00\x0a\x00\x15\xff\xff\xff\xffab",
			ReplySyntaxError, "SYNTAX_ERROR - response: longstr needs 4294967295 octets, 2 left",
		},
		{
			"table longer than the frame", "\x00\x32\x00\x0a\x00\x00\x01q\x00\xff\xff\xff\xff\x01aV",
			ReplySyntaxError, "SYNTAX_ERROR - arguments: table of 4294967295 octets, 3 left",
		},
		{
			"unknown type in a table", "\x00\x32\x00\x0a\x00\x00\x01q\x00\x00\x00\x00\x03\x01a?",
			ReplySyntaxError, `SYNTAX_ERROR - arguments: field "a": unknown field type '?'`,
		},
		{
			"name that is not UTF-8", "\x00\x32\x00\x0a\x00\x00\x02\xff\xfe\x00\x00\x00\x00\x00",
			ReplyFrameError, "FRAME_ERROR - Malformed UTF-8 in shortstr",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseMethod([]byte(c.payload))
			wantError(t, err, c.code, c.text)
		})
	}
}

// For speed, RabbitMQ does not validate the names in content methods: a publisher's routing key may be any bytes.
func TestContentMethodsMayHoldAnyBytes(t *testing.T) {
	b := AppendMethod(nil, 1, &BasicPublish{RoutingKey: "\xff"})
	m, err := ParseMethod(b[frameHead : len(b)-1])
	if err != nil || m.(*BasicPublish).RoutingKey != "\xff" {
		t.Errorf("got %+v, error %v", m, err)
	}
}

func TestParseMethodKeepsNothingOfThePayload(t *testing.T) {
	in := &QueueDeclare{Queue: "q", Arguments: Table{{"k", "v"}, {"x", []byte("y")}}}
	b := AppendMethod(nil, 1, in)
	payload := b[frameHead : len(b)-1]
	got, err := ParseMethod(payload)
	if err != nil {
		t.Fatal(err)
	}
	clear(payload)
	if !reflect.DeepEqual(got, in) {
		t.Errorf("got %+v after the buffer was reused, want %+v", got, in)
	}
}

func TestAppendCutsShortStrings(t *testing.T) {
	long := strings.Repeat("q", 300)
	b := AppendMethod(nil, 1, &QueueDeclareOK{Queue: long, MessageCount: 7})
	m, err := ParseMethod(b[frameHead : len(b)-1])
	if err != nil {
		t.Fatal(err)
	}
	if got := m.(*QueueDeclareOK); got.Queue != long[:255] || got.MessageCount != 7 {
		t.Errorf("got %+v", got)
	}
}

// [AMQP 4.2.5.2]: the first bit is the lowest; the bits before a table and after it do not share an octet.
func TestBitsArePackedLowestFirst(t *testing.T) {
	b := AppendMethod(nil, 1, &ExchangeDeclare{Type: "fanout", Durable: true, NoWait: true})
	want := rawFrame(FrameMethod, 1, "\x00\x28\x00\x0a\x00\x00\x00\x06fanout\x12\x00\x00\x00\x00")
	if !bytes.Equal(b, want) {
		t.Errorf("got %x, want %x", b, want)
	}
}
