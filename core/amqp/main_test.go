package amqp

import (
	"errors"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wantError checks that err is the protocol error with this code and whole text.
func wantError(t *testing.T, err error, code uint16, text string) {
	t.Helper()
	e := protocolError(err)
	if e == nil || e.Code != code || e.Error() != text {
		t.Fatalf("got error %v, want %d %s", err, code, text)
	}
}

// protocolError returns err as a protocol error; nil = it is none.
func protocolError(err error) *Error {
	e, _ := errors.AsType[*Error](err)
	return e
}

// isProtocolError checks that err, unless nil, is a hard protocol error with a name, the only kind that a codec may report.
func isProtocolError(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	e := protocolError(err)
	if e == nil || !e.Hard() || e.Name == "" || len(e.ReplyText()) > maxShortstr {
		t.Fatalf("got error %#v, want a hard protocol error", err)
	}
}

func noAllocs(t *testing.T, name string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(100, f); n != 0 {
		t.Errorf("%s: got %v allocations, want none", name, n)
	}
}
