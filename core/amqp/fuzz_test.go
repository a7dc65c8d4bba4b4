package amqp

import (
	"bytes"
	"reflect"
	"testing"
)

// FuzzFrames feeds a byte stream: every parsed frame encodes to its original bytes, and a truncated stream causes
// neither a panic nor an error other than a protocol error.
func FuzzFrames(f *testing.F) {
	for _, c := range captures(f) {
		f.Add(c.bytes, 4096)
		f.Add(c.bytes[:len(c.bytes)/2], 131072)
	}
	f.Add([]byte("\x03\x00\x01\xff\xff\xff\xff"), 0)
	f.Add([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), 4096)
	f.Add(AppendHeartbeat(nil), 4096)
	f.Fuzz(func(t *testing.T, in []byte, frameMax int) {
		for rest := in; ; {
			fr, n, err := NextFrame(rest, frameMax)
			isProtocolError(t, err)
			if n == 0 || err != nil {
				return
			}
			if n > max(frameMax, FrameMinSize) && n-max(frameMax, FrameMinSize) > FrameSlack {
				t.Fatalf("frame of %d bytes with a limit of %d", n, frameMax)
			}
			if got := rawFrame(fr.Type, fr.Channel, string(fr.Payload)); !bytes.Equal(got, rest[:n]) {
				t.Fatalf("got %x from %x", got, rest[:n])
			}
			rest = rest[n:]
		}
	})
}

// FuzzMethods feeds the payload of a method frame: if it decodes, encoding and decoding it again gives the same method.
func FuzzMethods(f *testing.F) {
	for _, c := range captures(f) {
		for _, fr := range c.frames {
			if fr.Type == FrameMethod {
				f.Add(fr.Payload)
			}
		}
	}
	eachMethod(func(m Method) {
		fill(m)
		b := AppendMethod(nil, 1, m)
		f.Add(b[frameHead : len(b)-1])
	})
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := ParseMethod(payload)
		isProtocolError(t, err)
		if len(payload) >= methodIDSize {
			sameVerdictOfShortCut(t, payload)
		}
		if err != nil {
			return
		}
		b := AppendMethod(nil, 1, m)
		again, err := ParseMethod(b[frameHead : len(b)-1])
		if err != nil {
			t.Fatalf("%+v does not come back: %v", m, err)
		}
		b2 := AppendMethod(nil, 1, again)
		if !bytes.Equal(b, b2) { // bytes, because a NaN in a table is not equal to itself
			t.Fatalf("got %+v from %+v", again, m)
		}
	})
}

// sameVerdictOfShortCut compares the allocation-free decoders with the generated ones, values and errors.
func sameVerdictOfShortCut(t *testing.T, payload []byte) {
	t.Helper()
	m := newMethod(be16(payload), be16(payload[2:]))
	in := payload[methodIDSize:]
	switch m.(type) {
	case *BasicPublish, *BasicAck, *BasicNack, *BasicReject:
		sameVerdict(t, m, in)
	}
	full, err := ParseMethod(payload)
	if err != nil {
		return
	}
	var short Method
	switch m := full.(type) {
	case *BasicPublish:
		exchange, key, mandatory, immediate, _ := ParsePublish(in)
		short = &BasicPublish{m.Ticket, string(exchange), string(key), mandatory, immediate}
	case *BasicAck:
		tag, multiple, _ := ParseAck(in)
		short = &BasicAck{tag, multiple}
	case *BasicNack:
		tag, multiple, requeue, _ := ParseNack(in)
		short = &BasicNack{tag, multiple, requeue}
	case *BasicReject:
		tag, requeue, _ := ParseReject(in)
		short = &BasicReject{tag, requeue}
	default:
		return
	}
	if !reflect.DeepEqual(short, full) {
		t.Fatalf("the short cut has %+v, the generated code %+v", short, full)
	}
}

// FuzzTables feeds a field table: the checked raw form and the decoded one agree, and both encode to the original bytes.
func FuzzTables(f *testing.F) {
	for _, c := range captures(f) {
		for _, fr := range c.frames {
			if fr.Type != FrameHeader {
				continue
			}
			h, _ := ParseContentHeader(fr.Payload)
			if x, err := ScanProps(h.Props); err == nil && x.Has(PropHeaders) {
				f.Add(x.Headers(h.Props).Append(nil))
			}
		}
	}
	f.Add(AppendTable(nil, allTypes()))
	f.Add(AppendTable(nil, Table{}))
	f.Add([]byte("\xff\xff\xff\xff\x01aV"))
	f.Add(bytes.Repeat([]byte("\x00\x00\x00\x10\x00F"), 100))
	f.Fuzz(func(t *testing.T, in []byte) {
		table, n, err := ParseTable(in)
		isProtocolError(t, err)
		raw, rawN, rawErr := ParseRawTable(in)
		if (err == nil) != (rawErr == nil) || n != rawN {
			t.Fatalf("decoded: %d bytes, error %v; raw: %d bytes, error %v", n, err, rawN, rawErr)
		}
		unchecked(t, RawTable(in))
		if err != nil {
			return
		}
		if !bytes.Equal(raw.Append(nil), in[:n]) {
			t.Fatalf("raw: got %x from %x", raw.Append(nil), in[:n])
		}
		first := AppendTable(nil, table)
		if len(first) != n {
			t.Fatalf("%d bytes became %d", n, len(first))
		}
		again, _, err := ParseTable(first)
		if err != nil || !bytes.Equal(AppendTable(nil, again), first) {
			t.Fatalf("got %v from %v, error %v", again, table, err)
		}
		fieldsAgree(t, raw, table)
	})
}

// unchecked walks bytes that are not a table. It must stay within bounds.
func unchecked(t *testing.T, raw RawTable) {
	t.Helper()
	for f := range raw.All() {
		_, err := f.Decode()
		isProtocolError(t, err)
	}
	_, _, err := raw.Lookup("x-death")
	isProtocolError(t, err)
}

func fieldsAgree(t *testing.T, raw RawTable, table Table) {
	t.Helper()
	i := 0
	for f := range raw.All() {
		v, err := f.Decode()
		if err != nil || string(f.Key) != table[i].Key || TypeName(v) == "" || TypeName(v) != TypeName(table[i].Value) {
			t.Fatalf("field %d: got %q %v, error %v, want %v", i, f.Key, v, err, table[i])
		}
		i++
	}
	if i != len(table) {
		t.Fatalf("got %d fields, want %d", i, len(table))
	}
}

// FuzzContentHeaders feeds the payload of a header frame: the index, the decoded form and every edit agree.
func FuzzContentHeaders(f *testing.F) {
	for _, c := range captures(f) {
		for _, fr := range c.frames {
			if fr.Type == FrameHeader {
				f.Add(fr.Payload)
			}
		}
	}
	rich := richProps()
	b := AppendContentHeader(nil, 1, 5, rich.Append(nil))
	f.Add(b[frameHead : len(b)-1])
	f.Add([]byte("\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00"))
	headers := RawTable(AppendTable(nil, Table{{"x-death", Array{}}})[4:])
	f.Fuzz(func(t *testing.T, payload []byte) {
		h, err := ParseContentHeader(payload)
		isProtocolError(t, err)
		if err != nil {
			return
		}
		x, err := ScanProps(h.Props)
		isProtocolError(t, err)
		p, perr := ParseProperties(h.Props)
		if (err == nil) != (perr == nil) {
			t.Fatalf("scan: error %v, parse: error %v", err, perr)
		}
		if err != nil {
			return
		}
		if got := p.Append(nil); len(got) != len(h.Props) {
			t.Fatalf("%d bytes of properties became %d", len(h.Props), len(got))
		}
		if got := RewriteProps(nil, h.Props, x, PropEdit{}); !bytes.Equal(got, h.Props) {
			t.Fatalf("no edit made %x from %x", got, h.Props)
		}
		edit := PropEdit{Headers: headers, ReplyTo: "elsewhere", DropExpiration: true}
		got := normalised(t, RewriteProps(nil, h.Props, x, edit))
		if want := edited(t, h.Props, edit); !bytes.Equal(got, want) {
			t.Fatalf("got %x, want %x", got, want)
		}
	})
}

// normalised decodes and encodes again, so that different encodings of one value become the same.
func normalised(t *testing.T, raw []byte) []byte {
	t.Helper()
	p, err := ParseProperties(raw)
	if err != nil {
		t.Fatal(err)
	}
	return p.Append(nil)
}
