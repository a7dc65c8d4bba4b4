package telemetry

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"

	"github.com/curfewmq/curfew/core/amqp"
)

// The headers of a context, as written by OpenTelemetry's propagators for AMQP.
const (
	parentHeader = "traceparent"
	stateHeader  = "tracestate"
)

// spanContext is a decoded traceparent. The zero value is none.
type spanContext struct {
	trace trace.TraceID
	span  trace.SpanID
	flags trace.TraceFlags
}

func (c *spanContext) valid() bool { return c.trace.IsValid() && c.span.IsValid() }

// contextOf returns the context in a message's headers, the zero value if it is absent or invalid. It does not allocate.
func contextOf(headers amqp.RawTable) spanContext {
	f, ok := headers.LookupRaw(parentHeader)
	if !ok {
		return spanContext{}
	}
	text, ok := f.Text()
	if !ok {
		return spanContext{}
	}
	return parseParent(text)
}

// The layout of traceparent [W3C Trace Context 3.2]:
//
//	00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
//	|  |                                |                flags
//	|  |                                span
//	|  trace
//	version
const (
	parentTrace = 3
	parentSpan  = parentTrace + 2*16 + 1
	parentFlags = parentSpan + 2*8 + 1
	parentSize  = parentFlags + 2
	badVersion  = 0xff
)

// parseParent parses traceparent. Later versions are read like version 0, and may have more text after a dash
// [W3C Trace Context 3.2.4].
func parseParent(s []byte) spanContext {
	var version, flags [1]byte
	var c spanContext
	if len(s) < parentSize || !unhex(version[:], s[:2]) || version[0] == badVersion {
		return spanContext{}
	}
	if len(s) > parentSize && (version[0] == 0 || s[parentSize] != '-') {
		return spanContext{}
	}
	if s[parentTrace-1] != '-' || s[parentSpan-1] != '-' || s[parentFlags-1] != '-' {
		return spanContext{}
	}
	if !unhex(c.trace[:], s[parentTrace:]) || !unhex(c.span[:], s[parentSpan:]) || !unhex(flags[:], s[parentFlags:]) {
		return spanContext{}
	}
	if !c.valid() {
		return spanContext{}
	}
	c.flags = trace.TraceFlags(flags[0]) & trace.FlagsSampled // the other bits are reserved
	return c
}

// unhex fills dst from the digits at the beginning of s. Upper-case letters are not accepted [W3C Trace Context 3.2.2].
func unhex(dst, s []byte) bool {
	s = s[:2*len(dst)]
	for i := range dst {
		high, low := digits[s[2*i]], digits[s[2*i+1]]
		if high == 0 || low == 0 {
			return false
		}
		dst[i] = (high-1)<<4 | (low - 1)
	}
	return true
}

// digits maps hexadecimal digits to their values plus 1. It is a table because the context of every message is decoded.
var digits = [256]byte{
	'0': 1, '1': 2, '2': 3, '3': 4, '4': 5, '5': 6, '6': 7, '7': 8, '8': 9, '9': 10,
	'a': 11, 'b': 12, 'c': 13, 'd': 14, 'e': 15, 'f': 16,
}

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.BigEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// parent appends the context in the form of traceparent.
func (c *spanContext) parent(dst []byte) []byte {
	dst = append(dst, "00-"...)
	dst = append(hex.AppendEncode(dst, c.trace[:]), '-')
	dst = append(hex.AppendEncode(dst, c.span[:]), '-')
	return hex.AppendEncode(dst, []byte{byte(c.flags)})
}

// maxState is the longest tracestate that spans adopt, in bytes; a longer one only stays in the message
// [W3C Trace Context 3.3.1.5].
const maxState = 512

// stateOf returns the tracestate in a message's headers, unchecked.
func stateOf(headers amqp.RawTable) []byte {
	f, _ := headers.LookupRaw(stateHeader)
	text, ok := f.Text()
	if !ok || len(text) > maxState {
		return nil
	}
	return text
}
