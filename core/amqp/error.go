package amqp

import (
	"fmt"
	"unicode/utf8"
)

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
