package telemetry

import (
	"bytes"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

const (
	traceHex = "0af7651916cd43dd8448eb211c80319c"
	spanHex  = "b7ad6b7169203331"
	sampled  = "00-" + traceHex + "-" + spanHex + "-01"
	ignored  = "00-" + traceHex + "-" + spanHex + "-00"
)

func TestParseParent(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		valid      bool
		sampled    bool
	}{
		{name: "sampled", text: sampled, valid: true, sampled: true},
		{name: "not sampled", text: ignored, valid: true},
		{name: "other flags", text: "00-" + traceHex + "-" + spanHex + "-fe", valid: true},
		{name: "all flags", text: "00-" + traceHex + "-" + spanHex + "-ff", valid: true, sampled: true},
		{name: "later version", text: "01-" + traceHex + "-" + spanHex + "-01", valid: true, sampled: true},
		{name: "later version that goes on", text: "cc-" + traceHex + "-" + spanHex + "-01-what.the-future-brings", valid: true, sampled: true},
		{name: "later version that ends with a dash", text: "cc-" + traceHex + "-" + spanHex + "-01-", valid: true, sampled: true},

		{name: "nothing"},
		{name: "version that is none", text: "ff-" + traceHex + "-" + spanHex + "-01"},
		{name: "our version that goes on", text: sampled + "-x"},
		{name: "later version with longer flags", text: "cc-" + traceHex + "-" + spanHex + "-01.what"},
		{name: "too short", text: sampled[:parentSize-1]},
		{name: "capitals", text: strings.ToUpper(sampled)},
		{name: "no digits in the version", text: "0x" + sampled[2:]},
		{name: "no digits in the trace", text: "00-" + strings.Repeat("g", 32) + "-" + spanHex + "-01"},
		{name: "no digits in the span", text: "00-" + traceHex + "-" + strings.Repeat(":", 16) + "-01"},
		{name: "no digits in the flags", text: "00-" + traceHex + "-" + spanHex + "-0 "},
		{name: "trace of zeros", text: "00-" + strings.Repeat("0", 32) + "-" + spanHex + "-01"},
		{name: "span of zeros", text: "00-" + traceHex + "-" + strings.Repeat("0", 16) + "-01"},
		{name: "no dashes", text: strings.ReplaceAll(sampled, "-", "_")},
		{name: "spaces around it", text: " " + sampled + " "},
		{name: "bytes of all kinds", text: strings.Repeat("\x00\xff", 40)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := parseParent([]byte(tc.text))
			if c.valid() != tc.valid || c.flags.IsSampled() != tc.sampled {
				t.Fatalf("%q: valid %v, sampled %v; want %v, %v", tc.text, c.valid(), c.flags.IsSampled(), tc.valid, tc.sampled)
			}
			if tc.valid && (c.trace.String() != traceHex || c.span.String() != spanHex) {
				t.Errorf("trace %v, span %v", c.trace, c.span)
			}
		})
	}
}

// table returns headers as encoded on the wire.
func table(fields ...amqp.Field) amqp.RawTable {
	raw, _, err := amqp.ParseRawTable(amqp.AppendTable(nil, fields))
	if err != nil {
		panic(err)
	}
	return raw
}

func TestContextOf(t *testing.T) {
	for _, tc := range []struct {
		name    string
		headers amqp.RawTable
		want    bool
	}{
		{name: "no headers"},
		{name: "other headers", headers: table(amqp.Field{Key: "x", Value: sampled})},
		{name: "string", headers: table(amqp.Field{Key: "a", Value: int32(1)}, amqp.Field{Key: "traceparent", Value: sampled}), want: true},
		{name: "binary", headers: table(amqp.Field{Key: "traceparent", Value: []byte(sampled)}), want: true},
		{name: "number", headers: table(amqp.Field{Key: "traceparent", Value: int64(1)})},
		{name: "table", headers: table(amqp.Field{Key: "traceparent", Value: amqp.Table{{Key: "traceparent", Value: sampled}}})},
		{name: "another spelling", headers: table(amqp.Field{Key: "Traceparent", Value: sampled})},
		{name: "the first of two counts", headers: table(amqp.Field{Key: "traceparent", Value: "x"}, amqp.Field{Key: "traceparent", Value: sampled})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := contextOf(tc.headers)
			if c.valid() != tc.want {
				t.Errorf("valid %v, want %v", c.valid(), tc.want)
			}
		})
	}
}

func TestState(t *testing.T) {
	for _, tc := range []struct{ name, state, want string }{
		{"one", "vendor=1", "vendor=1"},
		{"several", "a=1,b@c=2", "a=1,b@c=2"},
		{"not one", "=;,", ""},
		{"twice the same", "a=1,a=2", ""},
		{"too long", "a=" + strings.Repeat("x", 200) + ",b=" + strings.Repeat("x", 200) + ",c=" + strings.Repeat("x", 200), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			headers := table(amqp.Field{Key: "traceparent", Value: sampled}, amqp.Field{Key: "tracestate", Value: tc.state})
			if got := validState(string(stateOf(headers))); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestNewContextsReadBack(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		c := newContext()
		text := string(c.parent(nil))
		if back := parseParent([]byte(text)); back != c || !c.flags.IsSampled() || seen[text] {
			t.Fatalf("%q is not the context that was made, or was there before", text)
		}
		seen[text] = true
	}
}

// An accepted context is written as it was read; anything else yields no context.
func FuzzParseParent(f *testing.F) {
	for _, s := range []string{sampled, ignored, "", "cc" + sampled[2:] + "-x", "ff" + sampled[2:], strings.Repeat("0", parentSize)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		c := parseParent(in)
		if !c.valid() {
			if c != (spanContext{}) {
				t.Fatalf("%q: half a context: %+v", in, c)
			}
			return
		}
		out := c.parent(nil)
		if !bytes.Equal(out[2:parentFlags], in[2:parentFlags]) {
			t.Fatalf("%q became %q", in, out)
		}
		if parseParent(out) != c {
			t.Fatalf("%q does not read back", out)
		}
	})
}

// ParentSamplingOf and Inject accept any headers, and Inject does not change headers that do not belong to the context.
func FuzzInject(f *testing.F) {
	f.Add([]byte("\x00\x00"))
	f.Add(propsOf(nil))
	f.Add(propsOf(table(amqp.Field{Key: "traceparent", Value: sampled}, amqp.Field{Key: "a", Value: true})))
	f.Add(propsOf(table(amqp.Field{Key: "tracestate", Value: "a=1"}, amqp.Field{Key: "baggage", Value: "b=2"})))
	s := &Spans{}
	f.Fuzz(func(t *testing.T, props []byte) {
		x, err := amqp.ScanProps(props)
		if err != nil {
			return
		}
		before := x.Headers(props)
		s.ParentSamplingOf(before)
		injected, _ := s.Inject(props, x)
		y, err := amqp.ScanProps(injected)
		if err != nil {
			t.Fatalf("%q became %q: %v", props, injected, err)
		}
		after := y.Headers(injected)
		if c := contextOf(after); !c.valid() {
			t.Fatalf("no context in %q", after)
		}
		if got, want := others(after), others(before); !bytes.Equal(got, want) {
			t.Fatalf("headers %q became %q", want, got)
		}
	})
}

// others returns the headers that do not belong to the context.
func others(headers amqp.RawTable) []byte {
	var rest []byte
	for f := range headers.All() {
		if key := string(f.Key); key != "traceparent" && key != "tracestate" {
			rest = f.Append(rest)
		}
	}
	return rest
}

// propsOf returns properties with these headers and a few others.
func propsOf(headers amqp.RawTable) []byte {
	p := amqp.Properties{MessageID: "id-1", CorrelationID: "talk-1", Expiration: "100"}
	p.Set(amqp.PropMessageID, amqp.PropCorrelationID, amqp.PropExpiration)
	props := p.Append(nil)
	if headers == nil {
		return props
	}
	x, err := amqp.ScanProps(props)
	if err != nil {
		panic(err)
	}
	return amqp.RewriteProps(nil, props, x, amqp.PropEdit{Headers: headers})
}
