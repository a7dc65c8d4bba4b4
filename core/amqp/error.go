package amqp

import (
	"fmt"
	"unicode/utf8"
)

// Error is a protocol error: what goes into channel.close or connection.close. Class and Method are the method that
// caused it, zero if none did.
type Error struct {
	Code          uint16
	Name          string // of the code, such as NOT_FOUND
	Text          string
	Class, Method uint16
	Soft          bool // the channel alone must close, whatever the code
}

// Errorf makes the error for a reply code. The layout is the part of the reply text after the name.
func Errorf(code uint16, layout string, args ...any) *Error {
	return &Error{Code: code, Name: ReplyName(code), Text: fmt.Sprintf(layout, args...)}
}

// In is a copy of e that names the method that caused it.
func (e *Error) In(class, method uint16) *Error {
	c := *e
	c.Class, c.Method = class, method
	return &c
}

// Error is the whole reply text, uncut: the name, and the text if there is one.
func (e *Error) Error() string {
	if e.Text == "" {
		return e.Name
	}
	return e.Name + " - " + e.Text
}

// Hard says that the connection must close, not the channel alone. Codes the protocol does not know are hard.
func (e *Error) Hard() bool { return !e.Soft && !soft(e.Code) }

// ReplyText is the reply text as it fits a short string: longer ones end in three dots after at most 252 bytes.
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
