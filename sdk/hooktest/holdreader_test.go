package hooktest

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// holds is a fake that reads holds.
type holds struct {
	fake
	names []string
	read  func(values []any) (hook.Wait, error)
}

func (h holds) HoldHeaders() []string { return h.names }

func (h holds) ReadHold(_ hook.Instant, values []any) (hook.Wait, error) { return h.read(values) }

func TestBadHoldReaders(t *testing.T) {
	var calls atomic.Int64
	one := []string{"x-hold"}
	good := func(values []any) (hook.Wait, error) {
		n, _ := hook.Int(values[0])
		return hook.Wait{After: max(n, 0)}, nil
	}
	for _, tc := range []struct {
		name  string
		names []string
		read  func(values []any) (hook.Wait, error)
		want  string
	}{
		{name: "is good", names: one, read: good},
		{name: "reads nothing", read: func([]any) (hook.Wait, error) { panic("asked") }},
		{name: "the same name twice", names: []string{"a", "a"}, read: good, want: `"a", which is empty or named twice`},
		{name: "no name", names: []string{""}, read: good, want: `"", which is empty or named twice`},
		{name: "too many", names: strings.Fields("a b c d e f g h i"), read: good, want: "reads 9 headers, at most 8"},
		{name: "needs a string", names: one, read: func(values []any) (hook.Wait, error) {
			return hook.Wait{After: int64(len(values[0].(string)))}, nil
		}, want: "panics: interface conversion"},
		{name: "is negative", names: one, read: func([]any) (hook.Wait, error) { return hook.Wait{After: -1}, nil }, want: "which is before now"},
		{name: "refuses without a word", names: one, read: func([]any) (hook.Wait, error) { return hook.Wait{}, errors.New("") }, want: "want one line"},
		{name: "counts", names: one, read: func([]any) (hook.Wait, error) {
			return hook.Wait{After: calls.Add(1)}, nil
		}, want: "then {After:"},
	} {
		got := record(func(r reporter) { checkHolds(r, holds{names: tc.names, read: tc.read}) })
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}
