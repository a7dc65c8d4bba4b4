package policy

import (
	"unsafe"

	"github.com/curfewmq/curfew/sdk/abi"
)

// Level is the severity of a log line.
type Level int32

// The levels.
const (
	LevelDebug Level = abi.LogDebug
	LevelInfo  Level = abi.LogInfo
	LevelWarn  Level = abi.LogWarn
	LevelError Level = abi.LogError
)

// Log writes a line to the broker's log, which limits the number of lines.
func Log(l Level, text string) { hostLog(int32(l), text) }

// LogEnabled reports whether the log accepts lines of this level at all.
func LogEnabled(l Level) bool { return hostLogEnabled(int32(l)) != 0 }

// ConfigInt returns a setting of the configuration. The names of nested settings are
// joined with dots.
func ConfigInt(name string, otherwise int64) int64 { return hostConfigInt(name, otherwise) }

// ConfigText returns a setting that is text, and whether there is one. Lists are
// returned as JSON.
func ConfigText(name string) (string, bool) {
	return text(func(buf unsafe.Pointer, limit uint32) int32 { return hostConfigText(name, buf, limit) })
}

// Count adds to a metric of the policy. It needs the grant metrics.
func Count(name string, delta int64) { hostCount(name, delta) }

// HeaderInt returns a header that is a number or can be read as one; a timestamp
// is milliseconds. Headers, properties, exchange and routing key need the grant
// headers.
func (m *Msg) HeaderInt(name string, otherwise int64) int64 {
	return hostHeaderInt(m.index, name, otherwise)
}

// HeaderText returns a header that is text, and whether there is one.
func (m *Msg) HeaderText(name string) (string, bool) {
	return text(func(buf unsafe.Pointer, limit uint32) int32 { return hostHeaderText(m.index, name, buf, limit) })
}

// Property is a part of a message that is text.
type Property uint32

// The properties.
const (
	Exchange   Property = abi.PropExchange
	RoutingKey Property = abi.PropRoutingKey
	MessageID  Property = abi.PropMessageID
	Type       Property = abi.PropType
	AppID      Property = abi.PropAppID
	UserID     Property = abi.PropUserID
)

// Property returns a property, and whether the message has it.
func (m *Msg) Property(p Property) (string, bool) {
	return text(func(buf unsafe.Pointer, limit uint32) int32 { return hostProperty(m.index, uint32(p), buf, limit) })
}

// Body copies the body from an offset on into b, as far as b has space, and returns
// the number of bytes copied. It needs the grant body.
func (m *Msg) Body(offset int, b []byte) int {
	return int(hostBody(m.index, uint32(offset), unsafe.Pointer(unsafe.SliceData(b)), uint32(len(b))))
}

// QueueInt returns a setting of the message's queue: message-ttl, or x-message-ttl.
func (m *Msg) QueueInt(name string, otherwise int64) int64 {
	return hostQueueInt(m.queue, name, otherwise)
}

// QueueText returns a setting of the message's queue that is text, and whether there is one.
func (m *Msg) QueueText(name string) (string, bool) {
	return text(func(buf unsafe.Pointer, limit uint32) int32 { return hostQueueText(m.queue, name, buf, limit) })
}

// Trace adds an attribute to the message's trace. It needs the grant trace.
func (m *Msg) Trace(key, value string) { hostTrace(m.index, key, value) }

// Hold keeps the message from being delivered before a time; other messages pass it. It applies
// together with a verdict that keeps the message, and [None] cancels it. A deadline that comes
// first is not postponed. It needs the grant hold.
func (m *Msg) Hold(until int64) {
	m.Held = until
	hostHold(m.index, until)
}

// absent is the result of host functions for a text that does not exist.
const absent = -1

// room is large enough for most texts.
var room [512]byte

// text reads a text into room or, if it is longer, into a buffer of its size.
func text(read func(buf unsafe.Pointer, limit uint32) int32) (string, bool) {
	b := room[:]
	n := read(unsafe.Pointer(&b[0]), uint32(len(b)))
	if int(n) > len(b) {
		b = make([]byte, n)
		n = read(unsafe.Pointer(&b[0]), uint32(len(b)))
	}
	if n < 0 {
		return "", false
	}
	return string(b[:n]), true
}
