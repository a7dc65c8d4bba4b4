package telemetry

import (
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/encoding/protowire"
)

// Spans are written as OTLP has them (opentelemetry/proto/trace/v1/trace.proto) without the structs that protobuf would make
// of them in between, which take longer than all the rest.

// The fields of the messages.
const (
	resourceOfResourceSpans = 1
	scopeOfResourceSpans    = 2

	scopeOfScopeSpans = 1
	spansOfScopeSpans = 2

	nameOfScope    = 1
	versionOfScope = 2

	attributesOfResource = 1

	traceOfSpan      = 1 // these three are alike in Link
	idOfSpan         = 2
	stateOfSpan      = 3
	parentOfSpan     = 4
	nameOfSpan       = 5
	kindOfSpan       = 6
	beginOfSpan      = 7
	endOfSpan        = 8
	attributesOfSpan = 9
	eventsOfSpan     = 11
	linksOfSpan      = 13
	statusOfSpan     = 15
	flagsOfSpan      = 16

	timeOfEvent       = 1
	nameOfEvent       = 2
	attributesOfEvent = 3

	flagsOfLink = 6

	messageOfStatus = 2
	codeOfStatus    = 3
	statusError     = 2

	keyOfAttribute   = 1
	valueOfAttribute = 2

	stringOfValue = 1
	boolOfValue   = 2
	intOfValue    = 3
	doubleOfValue = 4
)

// The flags of spans and links say, besides the context's own, whether the context that a span is a child of, or a link goes to,
// is of another process.
const (
	flagsTell   = 0x100
	flagsRemote = 0x200
)

// appendSpan appends a span as a field of ScopeSpans.
func appendSpan(b []byte, s *span) []byte {
	b, mark := begin(b, spansOfScopeSpans)
	b = appendContext(b, s.context)
	if s.parent.HasSpanID() {
		id := s.parent.SpanID()
		b = appendField(b, parentOfSpan, id[:])
	}
	b = appendField(b, nameOfSpan, s.name)
	b = appendNumber(b, kindOfSpan, uint64(s.kind)) // which the API numbers as OTLP does
	b = appendTime(b, beginOfSpan, s.began)
	b = appendTime(b, endOfSpan, s.ended)
	b = appendAttributes(b, attributesOfSpan, s.attributes)
	for i := range s.events {
		b = appendEvent(b, &s.events[i])
	}
	for i := range s.links {
		b = appendLink(b, s.links[i].SpanContext)
	}
	if s.failure != "" {
		b = appendFailure(b, s.failure)
	}
	b = appendFlags(b, flagsOfSpan, s.context.TraceFlags(), s.parent.IsRemote())
	return end(b, mark)
}

// appendContext appends what Span and Link begin with.
func appendContext(b []byte, c trace.SpanContext) []byte {
	t, s := c.TraceID(), c.SpanID()
	b = appendField(b, traceOfSpan, t[:])
	b = appendField(b, idOfSpan, s[:])
	if state := c.TraceState(); state.Len() > 0 {
		b = appendField(b, stateOfSpan, state.String())
	}
	return b
}

func appendFlags(b []byte, field protowire.Number, flags trace.TraceFlags, remote bool) []byte {
	all := uint32(flags) | flagsTell
	if remote {
		all |= flagsRemote
	}
	b = protowire.AppendTag(b, field, protowire.Fixed32Type)
	return protowire.AppendFixed32(b, all)
}

func appendEvent(b []byte, e *event) []byte {
	b, mark := begin(b, eventsOfSpan)
	b = appendTime(b, timeOfEvent, e.at)
	b = appendField(b, nameOfEvent, e.name)
	b = appendAttributes(b, attributesOfEvent, e.attributes)
	return end(b, mark)
}

func appendLink(b []byte, c trace.SpanContext) []byte {
	b, mark := begin(b, linksOfSpan)
	b = appendContext(b, c)
	b = appendFlags(b, flagsOfLink, c.TraceFlags(), c.IsRemote())
	return end(b, mark)
}

func appendFailure(b []byte, failure string) []byte {
	b, mark := begin(b, statusOfSpan)
	b = appendField(b, messageOfStatus, failure)
	b = appendNumber(b, codeOfStatus, statusError)
	return end(b, mark)
}

func appendAttributes(b []byte, field protowire.Number, as []attribute.KeyValue) []byte {
	for i := range as {
		var kv, v int
		b, kv = begin(b, field)
		b = appendField(b, keyOfAttribute, string(as[i].Key))
		b, v = begin(b, valueOfAttribute)
		b = appendValue(b, as[i].Value)
		b = end(end(b, v), kv)
	}
	return b
}

// appendValue appends the value of an attribute: the core has those of these types.
func appendValue(b []byte, v attribute.Value) []byte {
	switch v.Type() {
	case attribute.BOOL:
		return appendNumber(b, boolOfValue, protowire.EncodeBool(v.AsBool()))
	case attribute.INT64:
		return appendNumber(b, intOfValue, uint64(v.AsInt64()))
	case attribute.FLOAT64:
		return appendFixed(b, doubleOfValue, math.Float64bits(v.AsFloat64()))
	}
	return appendField(b, stringOfValue, v.String())
}

// begin begins a field that is a message, of which mark is where its content begins. end ends it.
func begin(b []byte, field protowire.Number) (with []byte, mark int) {
	b = append(protowire.AppendTag(b, field, protowire.BytesType), 0)
	return b, len(b)
}

// end fits in how long the content is that begins at mark: there is one byte for it, which is enough for most.
func end(b []byte, mark int) []byte {
	size := uint64(len(b) - mark)
	more := protowire.SizeVarint(size) - 1
	if more > 0 {
		b = append(b, make([]byte, more)...)
		copy(b[mark+more:], b[mark:])
	}
	protowire.AppendVarint(b[:mark-1], size)
	return b
}

func appendField[T string | []byte](b []byte, field protowire.Number, content T) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return append(protowire.AppendVarint(b, uint64(len(content))), content...)
}

func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

func appendFixed(b []byte, field protowire.Number, n uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), n)
}

func appendTime(b []byte, field protowire.Number, t time.Time) []byte {
	return appendFixed(b, field, uint64(t.UnixNano()))
}

// envelope returns what stands around spans in a request: all of ResourceSpans, and the beginning of ScopeSpans.
func envelope(r []attribute.KeyValue, version string) (of, by []byte) {
	b, mark := begin(nil, resourceOfResourceSpans)
	of = end(appendAttributes(b, attributesOfResource, r), mark)
	b, mark = begin(nil, scopeOfScopeSpans)
	b = appendField(b, nameOfScope, scope)
	return of, end(appendField(b, versionOfScope, version), mark)
}

// appendRequest appends the content of a ResourceSpans with encoded spans.
func appendRequest(b, of, by, spans []byte) []byte {
	b, mark := begin(append(b, of...), scopeOfResourceSpans)
	b = append(append(b, by...), spans...)
	return end(b, mark)
}
