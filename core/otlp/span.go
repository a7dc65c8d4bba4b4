package otlp

import (
	"encoding/binary"
	"math"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Spans are encoded field by field (opentelemetry/proto/trace/v1/trace.proto), because
// protobuf's structs would cost more than all other work on a span.

// Numbers of fields.
const (
	attributesOfResource = 1

	spansOfScopeSpans = 2

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

// Besides the context's flags, the flags of spans and links say whether the context of the parent or the link comes from another process.
const (
	flagsTell   = 0x100
	flagsRemote = 0x200
)

// appendSpan appends a span as a field of ScopeSpans.
func appendSpan(b []byte, s *telemetry.Span) []byte {
	b, mark := begin(b, spansOfScopeSpans)
	b = appendContext(b, s, &s.ID)
	if s.Parent.IsValid() {
		b = appendField(b, parentOfSpan, s.Parent[:])
	}
	if of := s.Template; of != nil {
		if len(of.Encoded) == 0 {
			of.Encoded = appendAttributes(appendName(of.Encoded, of.Name, of.Kind), attributesOfSpan, of.Attributes)
		}
		b = append(b, of.Encoded...)
	} else {
		b = appendName(b, s.Name, s.Kind)
	}
	b = appendTime(b, beginOfSpan, s.Began)
	b = appendTime(b, endOfSpan, s.Ended)
	b = appendAttributes(b, attributesOfSpan, s.Attributes)
	for i := range s.Events {
		b = appendEvent(b, &s.Events[i])
	}
	if s.Link.IsValid() {
		b = appendLink(b, s)
	}
	if s.Failure != "" {
		b = appendFailure(b, s.Failure)
	}
	b = appendFlags(b, flagsOfSpan, trace.FlagsSampled, s.Remote)
	return end(b, mark)
}

func appendName(b []byte, name string, kind trace.SpanKind) []byte {
	b = appendField(b, nameOfSpan, name)
	return appendNumber(b, kindOfSpan, uint64(kind)) // the API uses OTLP's numbers
}

// appendContext appends the common first fields of Span and Link.
func appendContext(b []byte, s *telemetry.Span, id *trace.SpanID) []byte {
	b = appendField(b, traceOfSpan, s.Trace[:])
	b = appendField(b, idOfSpan, id[:])
	if s.State != "" {
		b = appendField(b, stateOfSpan, s.State)
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

func appendEvent(b []byte, h *telemetry.SpanEvent) []byte {
	b, mark := begin(b, eventsOfSpan)
	b = appendTime(b, timeOfEvent, h.At)
	b = appendField(b, nameOfEvent, h.Name)
	b = appendAttributes(b, attributesOfEvent, h.Attributes)
	return end(b, mark)
}

func appendLink(b []byte, s *telemetry.Span) []byte {
	b, mark := begin(b, linksOfSpan)
	b = appendContext(b, s, &s.Link)
	b = appendFlags(b, flagsOfLink, s.LinkFlags, true)
	return end(b, mark)
}

func appendFailure(b []byte, failure string) []byte {
	b, mark := begin(b, statusOfSpan)
	b = appendField(b, messageOfStatus, failure)
	b = appendNumber(b, codeOfStatus, statusError)
	return end(b, mark)
}

// appendAttributes appends attributes of the types that the core uses; field is below 16.
// Attributes are most of a span. Computing their sizes in advance, instead of inserting
// them as end does, takes a third off the cost of the whole span.
func appendAttributes(b []byte, field protowire.Number, as []attribute.KeyValue) []byte {
	for i := range as {
		key, v := string(as[i].Key), as[i].Value
		switch v.Type() {
		case attribute.BOOL:
			b = append(appendKey(b, field, key, 2), boolOfValue<<3, byte(protowire.EncodeBool(v.AsBool())))
		case attribute.INT64:
			n := uint64(v.AsInt64())
			b = binary.AppendUvarint(append(appendKey(b, field, key, 1+protowire.SizeVarint(n)), intOfValue<<3), n)
		case attribute.FLOAT64:
			b = append(appendKey(b, field, key, 1+8), doubleOfValue<<3|byte(protowire.Fixed64Type))
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v.AsFloat64()))
		default:
			text := v.AsString()
			b = append(appendKey(b, field, key, sizeOfText(len(text))), stringOfValue<<3|byte(protowire.BytesType))
			b = append(appendSize(b, len(text)), text...)
		}
	}
	return b
}

// appendKey appends an attribute up to the content of its value, which has the size value.
func appendKey(b []byte, field protowire.Number, key string, value int) []byte {
	b = append(b, byte(field)<<3|byte(protowire.BytesType))
	b = appendSize(b, sizeOfText(len(key))+sizeOfText(value))
	b = append(b, keyOfAttribute<<3|byte(protowire.BytesType))
	b = append(appendSize(b, len(key)), key...)
	return appendSize(append(b, valueOfAttribute<<3|byte(protowire.BytesType)), value)
}

// sizeOfText returns the encoded size of a field with n bytes.
func sizeOfText(n int) int { return 1 + protowire.SizeVarint(uint64(n)) + n }

// appendSize appends a length, which nearly always takes one byte.
func appendSize(b []byte, n int) []byte {
	if n < 0x80 {
		return append(b, byte(n))
	}
	return binary.AppendUvarint(b, uint64(n))
}

// begin starts a field that is a message. The message's content starts at mark. end completes the field.
func begin(b []byte, field protowire.Number) (with []byte, mark int) {
	b = append(protowire.AppendTag(b, field, protowire.BytesType), 0)
	return b, len(b)
}

// end inserts the length of the content that starts at mark. begin left one byte for the length, which nearly always suffices.
func end(b []byte, mark int) []byte {
	size := uint64(len(b) - mark)
	if size < 0x80 {
		b[mark-1] = byte(size)
		return b
	}
	more := protowire.SizeVarint(size) - 1
	b = append(b, make([]byte, more)...)
	copy(b[mark+more:], b[mark:])
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

func appendTime(b []byte, field protowire.Number, t hook.Instant) []byte {
	return appendFixed(b, field, uint64(t))
}

// Source describes the origin of spans.
type Source struct {
	Resource *resource.Resource
	Scope    string // the instrumentation scope
	Version  string // of the scope
}

// resourceSpans returns the request for encoded spans. Protobuf sends unknown fields
// unchanged, so encoded fields are passed as unknown ones. The schema of the spans is the
// core's.
func (s *Source) resourceSpans(spans []byte) *tracepb.ResourceSpans {
	var of resourcepb.Resource
	of.ProtoReflect().SetUnknown(appendAttributes(nil, attributesOfResource, s.Resource.Attributes()))
	by := tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: s.Scope, Version: s.Version}, SchemaUrl: telemetry.Schema}
	by.ProtoReflect().SetUnknown(spans)
	return &tracepb.ResourceSpans{Resource: &of, SchemaUrl: s.Resource.SchemaURL(), ScopeSpans: []*tracepb.ScopeSpans{&by}}
}
