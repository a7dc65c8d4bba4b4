// Package amqp is the AMQP 0-9-1 codec: bytes in, values out, and back.
//
// It does no I/O, starts no goroutine and knows neither sessions nor queues. Three layers, lowest first:
//
//   - frames: [NextFrame] parses one, [AppendMethod], [AppendContentHeader] and [AppendBody] write them;
//   - methods: [ParseMethod] and the generated types for all of them, [ParsePublish], [AppendDeliver] and others for the frequent
//     ones, without allocating;
//   - content: [ParseContentHeader], [ScanProps] and [RewriteProps] work on the raw properties that a publisher sent, so that a
//     message passes through the broker without being decoded. [RawTable] reads a headers table the same way.
//
// Input from a peer may be hostile. Every length is checked against the available bytes before anything is allocated, tables may
// be nested [MaxTableDepth] deep, and each error is an [*Error] with its reply code.
//
// Methods, properties and reply codes are generated from the protocol table in the folder spec.
package amqp

import (
	"fmt"
	"unicode/utf8"
	"unsafe"
)

//go:generate go run ./spec/gen methods_gen.go

// ProtocolHeader is the first thing that a client sends [AMQP 4.2.2].
const ProtocolHeader = "AMQP\x00\x00\x09\x01"

// ProtocolHeader09 announces AMQP 0-9. Some clients that speak 0-9-1 send it, and RabbitMQ accepts it.
const ProtocolHeader09 = "AMQP\x01\x01\x00\x09"

// Method is a decoded method; the generated pointer types implement it.
type Method interface {
	ID() (class, method uint16)
	Name() string
	fields(c *codec)
}

// MethodInfo describes a method.
type MethodInfo struct {
	Name        string // such as queue.declare
	Synchronous bool   // the sender waits for an answer, unless it sets no-wait
	Content     bool   // a content header and body frames follow
}

// Info describes the method with these ids; false if there is no such method.
func Info(class, method uint16) (MethodInfo, bool) {
	t, ok := methods[methodKey{class, method}]
	return t.MethodInfo, ok
}

// ClassName returns the name of a class, such as queue; empty for an unknown one.
func ClassName(class uint16) string { return classNames[class] }

// ReplyName returns the name of a reply code, such as NOT_FOUND, with which reply texts begin; empty for an unknown code.
func ReplyName(code uint16) string { return replyNames[code] }

// methodKey consists of the ids of a class and of one of its methods.
type methodKey struct{ class, method uint16 }

// methodType is generated for each method.
type methodType struct {
	MethodInfo
	new func() Method
}

// newMethod returns an empty method; nil = no method has these ids.
func newMethod(class, method uint16) Method {
	t, ok := methods[methodKey{class, method}]
	if !ok {
		return nil
	}
	return t.new()
}

// noArguments is embedded in methods without arguments.
type noArguments struct{}

func (noArguments) fields(*codec) {}

// ParseMethod decodes the payload of a method frame. The result does not alias payload. The error is 503 for an unknown class, 540 for
// an unknown method of a known class, 502 for arguments that do not fit, and 501 for a short string that is not UTF-8, as in
// RabbitMQ.
func ParseMethod(payload []byte) (Method, error) {
	class, method, err := MethodID(payload)
	if err != nil {
		return nil, err
	}
	m := newMethod(class, method)
	if m == nil {
		return nil, unknownMethod(class, method)
	}
	info, _ := Info(class, method)
	c := codec{reading: true, buf: payload[4:], utf8: !info.Content}
	m.fields(&c)
	if err := c.finish(); err != nil {
		return nil, err.In(class, method)
	}
	return m, nil
}

// MethodID returns the class and method at the start of a method frame's payload. [NextFrame] refuses payloads without them.
func MethodID(payload []byte) (class, method uint16, err error) {
	if len(payload) < 4 {
		return 0, 0, Errorf(ReplySyntaxError, "method frame of %d octets: at least 4 expected", len(payload))
	}
	return be16(payload), be16(payload[2:]), nil
}

func unknownMethod(class, method uint16) *Error {
	name := ClassName(class)
	if name == "" {
		return Errorf(ReplyCommandInvalid, "unknown class %d (method %d)", class, method).In(class, method)
	}
	return Errorf(ReplyNotImplemented, "unknown method %d of class %s", method, name).In(class, method)
}

// BytesOf returns the bytes of a string without copying them. They must not be written.
func BytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// Error is a protocol error, as reported by channel.close or connection.close. Class and Method are the method that caused it, or 0.
type Error struct {
	Code          uint16
	Name          string // of the code, such as NOT_FOUND
	Text          string
	Class, Method uint16
	Soft          bool // only the channel must close, even if the code is a hard error
	Undone        bool // the method certainly had no effect; this field is not sent
}

// Errorf returns the error for a reply code. The layout gives the part of the reply text after the name.
func Errorf(code uint16, layout string, args ...any) *Error {
	return &Error{Code: code, Name: ReplyName(code), Text: fmt.Sprintf(layout, args...)}
}

// In returns a copy of e with the method that caused it.
func (e *Error) In(class, method uint16) *Error {
	c := *e
	c.Class, c.Method = class, method
	return &c
}

// Error returns the full reply text: the name, and the text if there is one.
func (e *Error) Error() string {
	if e.Text == "" {
		return e.Name
	}
	return e.Name + " - " + e.Text
}

// Hard reports that the connection must close, not only the channel. Unknown codes are hard.
func (e *Error) Hard() bool { return !e.Soft && !soft(e.Code) }

// ReplyText returns the reply text in the size of a short string: a longer text is cut to at most 252 bytes and three dots.
func (e *Error) ReplyText() string {
	text := e.Error()
	if len(text) <= maxShortstr {
		return text
	}
	cut := maxShortstr - len("...")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}
