package amqp

import (
	"bytes"
	"reflect"
	"testing"
)

// richProps has every property.
func richProps() Properties {
	p := Properties{
		ContentType: "application/json", ContentEncoding: "utf-8",
		Headers:      Table{{"k", "v"}, {"n", int32(1)}},
		DeliveryMode: 2, Priority: 5, CorrelationID: "c-1", ReplyTo: "answers", Expiration: "60000", MessageID: "m-1",
		Timestamp: 1700000000, Type: "order", UserID: "guest", AppID: "shop", ClusterID: "cluster",
	}
	for prop := range Property(propCount) {
		p.Set(prop)
	}
	return p
}

func TestPropertiesSurviveTheWire(t *testing.T) {
	for flags := range uint16(1 << propCount) {
		in := richProps()
		in.Flags = flags << (16 - propCount)
		raw := in.Append(nil)
		out, err := ParseProperties(raw)
		if err != nil || out.Flags != in.Flags {
			t.Fatalf("%#04x: got %#04x, error %v", in.Flags, out.Flags, err)
		}
		if again := out.Append(nil); !bytes.Equal(again, raw) {
			t.Fatalf("%#04x: got %x, want %x", in.Flags, again, raw)
		}
	}
	in := richProps()
	if out, err := ParseProperties(in.Append(nil)); err != nil || !reflect.DeepEqual(out, in) {
		t.Errorf("got %+v, error %v", out, err)
	}
}

func TestPropertyBytes(t *testing.T) {
	p := Properties{DeliveryMode: 2, Expiration: "60"}
	p.Set(PropDeliveryMode, PropExpiration)
	if got, want := string(p.Append(nil)), "\x11\x00\x02\x0260"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if PropContentType.Flag() != 1<<15 || PropClusterID.Flag() != 1<<2 || PropClusterID.String() != "cluster-id" {
		t.Errorf("got %x %x %s", PropContentType.Flag(), PropClusterID.Flag(), PropClusterID)
	}
}

func TestPropIndexFindsEverything(t *testing.T) {
	p := richProps()
	raw := p.Append(nil)
	x, err := ScanProps(raw)
	if err != nil {
		t.Fatal(err)
	}
	if got := x.Headers(raw); cap(got) != len(got) {
		t.Error("appending to the headers would write over the property after them")
	}
	shortstr := func(prop Property) func(*PropIndex, []byte) ([]byte, bool) {
		return func(x *PropIndex, raw []byte) ([]byte, bool) { return x.shortstr(raw, prop) }
	}
	for _, c := range []struct {
		prop Property
		get  func(*PropIndex, []byte) ([]byte, bool)
		want string
	}{
		{PropContentType, shortstr(PropContentType), p.ContentType},
		{PropContentEncoding, shortstr(PropContentEncoding), p.ContentEncoding},
		{PropCorrelationID, (*PropIndex).CorrelationID, p.CorrelationID},
		{PropReplyTo, (*PropIndex).ReplyTo, p.ReplyTo},
		{PropExpiration, (*PropIndex).Expiration, p.Expiration},
		{PropMessageID, (*PropIndex).MessageID, p.MessageID},
		{PropType, (*PropIndex).Type, p.Type},
		{PropUserID, (*PropIndex).UserID, p.UserID},
		{PropAppID, (*PropIndex).AppID, p.AppID},
		{PropClusterID, shortstr(PropClusterID), p.ClusterID},
	} {
		if got, ok := c.get(&x, raw); string(got) != c.want || !ok || !x.Has(c.prop) {
			t.Errorf("%s: got %q %t", c.prop, got, ok)
		}
		if got, ok := c.get(&PropIndex{}, raw); got != nil || ok {
			t.Errorf("%s of nothing: got %q %t", c.prop, got, ok)
		}
	}
	if got, err := x.Headers(raw).Decode(); err != nil || !reflect.DeepEqual(got, p.Headers) {
		t.Errorf("headers: got %v, error %v", got, err)
	}
	priority, ok := x.Priority(raw)
	mode, _ := x.octet(raw, PropDeliveryMode)
	if priority != 5 || !ok || mode != 2 || !x.Persistent(raw) {
		t.Errorf("priority %d %t, delivery mode %d", priority, ok, mode)
	}
	if ts, ok := x.Timestamp(raw); ts != p.Timestamp || !ok {
		t.Errorf("timestamp %d %t", ts, ok)
	}
}

func TestPropIndexOfNothing(t *testing.T) {
	raw := []byte{0, 0}
	x, err := ScanProps(raw)
	if err != nil {
		t.Fatal(err)
	}
	if x.Headers(raw) != nil || x.Persistent(raw) {
		t.Error("found what is not there")
	}
	if _, ok := x.Priority(raw); ok {
		t.Error("found a priority")
	}
	if _, ok := x.Timestamp(raw); ok {
		t.Error("found a timestamp")
	}
}

// An empty value is not an absent one: expiration "" is an error of the publisher, no expiration is not.
func TestPropIndexTellsEmptyFromAbsent(t *testing.T) {
	var p Properties
	p.Set(PropHeaders, PropExpiration)
	raw := p.Append(nil)
	x, err := ScanProps(raw)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := x.Expiration(raw); len(got) != 0 || !ok {
		t.Errorf("expiration: got %q %t", got, ok)
	}
	if got := x.Headers(raw); got == nil || len(got) != 0 {
		t.Errorf("headers: got %#v", got)
	}
}

func TestScanPropsRefuses(t *testing.T) {
	for _, c := range []struct{ name, raw, text string }{
		{"nothing", "", "properties of 0 octets: at least 2 expected"},
		{"half a flag word", "\x00", "properties of 1 octets: at least 2 expected"},
		{"a second flag word", "\x00\x01\x00\x00", "property flags 0x0001: the lowest 2 bits mean nothing"},
		{"a fifteenth property", "\x00\x02", "property flags 0x0002: the lowest 2 bits mean nothing"},
		{"a property without a value", "\x80\x00", "content-type: 1 octets needed, 0 left"},
		{"a string cut short", "\x80\x00\x09text", "content-type: 10 octets needed, 5 left"},
		{"a timestamp cut short", "\x00\x40\x00\x00\x00\x01", "timestamp: 8 octets needed, 4 left"},
		{"headers that lie", "\x20\x00\x00\x00\x00\x09\x01aV", "headers: table of 9 octets, 3 left"},
		{"headers of an unknown type", "\x20\x00\x00\x00\x00\x03\x01a?", `headers: field "a": unknown field type '?'`},
		{"more than announced", "\x10\x00\x02\x00", "1 octets after the last property"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ScanProps([]byte(c.raw))
			wantError(t, err, ReplySyntaxError, "SYNTAX_ERROR - "+c.text)
			_, err = ParseProperties([]byte(c.raw))
			wantError(t, err, ReplySyntaxError, "SYNTAX_ERROR - "+c.text)
		})
	}
}

// edited does with decoding what RewriteProps does without.
func edited(t *testing.T, raw []byte, e PropEdit) []byte {
	t.Helper()
	p, err := ParseProperties(raw)
	if err != nil {
		t.Fatal(err)
	}
	if e.Headers != nil {
		p.Set(PropHeaders)
		if p.Headers, err = e.Headers.Decode(); err != nil {
			t.Fatal(err)
		}
	}
	if e.ReplyTo != "" {
		p.Set(PropReplyTo)
		p.ReplyTo = e.ReplyTo
	}
	if e.DropExpiration {
		p.Flags &^= PropExpiration.Flag()
	}
	return p.Append(nil)
}

// Every combination of properties with every edit.
func TestRewriteProps(t *testing.T) {
	headers := RawTable(AppendTable(nil, Table{{"x-death", Array{Table{{"count", int64(1)}}}}})[4:])
	for flags := range uint16(1 << propCount) {
		p := richProps()
		p.Flags = flags << (16 - propCount)
		raw := p.Append(nil)
		x, err := ScanProps(raw)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range []PropEdit{
			{},
			{DropExpiration: true},
			{Headers: headers},
			{Headers: RawTable{}},
			{ReplyTo: "amq.rabbitmq.reply-to.x"},
			{Headers: headers, DropExpiration: true},
			{Headers: headers, ReplyTo: "r", DropExpiration: true},
		} {
			got := RewriteProps([]byte("before"), raw, x, e)
			if want := append([]byte("before"), edited(t, raw, e)...); !bytes.Equal(got, want) {
				t.Fatalf("%#04x %+v: got %x, want %x", p.Flags, e, got, want)
			}
		}
	}
}

// Properties that are not edited keep their bytes, even where decoding and encoding would change them: the type L, a bool of 7.
func TestRewritePropsDoesNotNormalise(t *testing.T) {
	raw := []byte("\x21\x00\x00\x00\x00\x0f\x01aL\x00\x00\x00\x00\x00\x00\x00\x01\x01bt\x07\x0260")
	x, err := ScanProps(raw)
	if err != nil {
		t.Fatal(err)
	}
	want := "\x20\x00" + string(raw[2:len(raw)-3])
	if got := RewriteProps(nil, raw, x, PropEdit{DropExpiration: true}); string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAppendHeader(t *testing.T) {
	field := RawField{Key: []byte("k"), Type: 'S', Value: []byte("v")}.Append(nil)
	rich := richProps()
	full := rich.Append(nil)
	bare := Properties{MessageID: "m"}
	bare.Set(PropMessageID)
	for name, raw := range map[string][]byte{"full": full, "no headers": bare.Append(nil), "nothing": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			x, err := ScanProps(raw)
			if err != nil {
				t.Fatal(err)
			}
			got := AppendHeader([]byte("before"), raw, x, field)
			if grown := len(got) - len("before") - len(raw) - len(field); grown < 0 || grown > MaxHeaderGrowth {
				t.Errorf("grew by %d bytes, want 0 to %d", grown, MaxHeaderGrowth)
			}
			headers := append(append(RawTable{}, x.Headers(raw)...), field...)
			if want := RewriteProps([]byte("before"), raw, x, PropEdit{Headers: headers}); !bytes.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}
