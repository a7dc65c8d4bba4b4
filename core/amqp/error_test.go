package amqp

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestErrorNamesItsCode(t *testing.T) {
	for _, c := range []struct {
		code uint16
		text string
		hard bool
	}{
		{ReplyContentTooLarge, "CONTENT_TOO_LARGE - x", false},
		{ReplyNoRoute, "NO_ROUTE - x", false},
		{ReplyNoConsumers, "NO_CONSUMERS - x", false},
		{ReplyConnectionForced, "CONNECTION_FORCED - x", true},
		{ReplyInvalidPath, "INVALID_PATH - x", true},
		{ReplyAccessRefused, "ACCESS_REFUSED - x", false},
		{ReplyNotFound, "NOT_FOUND - x", false},
		{ReplyResourceLocked, "RESOURCE_LOCKED - x", false},
		{ReplyPreconditionFailed, "PRECONDITION_FAILED - x", false},
		{ReplyFrameError, "FRAME_ERROR - x", true},
		{ReplySyntaxError, "SYNTAX_ERROR - x", true},
		{ReplyCommandInvalid, "COMMAND_INVALID - x", true},
		{ReplyChannelError, "CHANNEL_ERROR - x", true},
		{ReplyUnexpectedFrame, "UNEXPECTED_FRAME - x", true},
		{ReplyResourceError, "RESOURCE_ERROR - x", true},
		{ReplyNotAllowed, "NOT_ALLOWED - x", true},
		{ReplyNotImplemented, "NOT_IMPLEMENTED - x", true},
		{ReplyInternalError, "INTERNAL_ERROR - x", true},
	} {
		e := Errorf(c.code, "%s", "x")
		if e.Error() != c.text || e.Hard() != c.hard {
			t.Errorf("%d: got %q, hard %t, want %q, hard %t", c.code, e, e.Hard(), c.text, c.hard)
		}
	}
}

// For internal errors RabbitMQ reports only the name of the code.
func TestErrorWithoutText(t *testing.T) {
	if got, want := (&Error{Code: ReplyInternalError, Name: "INTERNAL_ERROR"}).ReplyText(), "INTERNAL_ERROR"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestErrorInKeepsTheOriginal(t *testing.T) {
	e := Errorf(ReplyNotFound, "no queue 'q' in vhost '/'")
	in := e.In(ClassQueue, MethodQueueBind)
	if in.Class != ClassQueue || in.Method != MethodQueueBind || in.Text != e.Text || in.Code != e.Code {
		t.Errorf("got %+v", in)
	}
	if e.Class != 0 || e.Method != 0 {
		t.Errorf("the original changed: %+v", e)
	}
}

func TestReplyTextFitsAShortString(t *testing.T) {
	const head = len("NOT_FOUND - ")
	for _, c := range []struct {
		name, text string
		want       int // length of the reply text
	}{
		{"short", "x", head + 1},
		{"just fits", strings.Repeat("x", 255-head), 255},
		{"one over", strings.Repeat("x", 256-head), 255},
		{"cut between runes", strings.Repeat("x", 251-head) + "äääää", 254},
	} {
		got := Errorf(ReplyNotFound, "%s", c.text).ReplyText()
		if len(got) != c.want || !utf8.ValidString(got) {
			t.Errorf("%s: got %d bytes %q, want %d", c.name, len(got), got, c.want)
		}
		if len(c.text) > 255-head && !strings.HasSuffix(got, "...") {
			t.Errorf("%s: got %q, want it to end in dots", c.name, got)
		}
	}
}
