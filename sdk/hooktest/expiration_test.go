package hooktest

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// expirations is a fake that reads the expiration property.
type expirations struct {
	fake
	read func(raw []byte) (hook.Limit, error)
}

func (e expirations) CheckExpiration(raw []byte) (hook.Limit, error) { return e.read(raw) }

// seconds reads a property that has seconds.
func seconds(raw []byte) (hook.Limit, error) {
	n, err := strconv.ParseUint(string(raw), 10, 32)
	if err != nil {
		return 0, errors.New("no seconds")
	}
	return hook.LimitOf(int64(n) * 1000), nil
}

// The suite used to check no expiration properties.
func TestBadExpirations(t *testing.T) {
	var calls atomic.Int64
	var last []byte
	var known hook.Limit
	for _, tc := range []struct {
		name string
		read func(raw []byte) (hook.Limit, error)
		want string
	}{
		{name: "is good", read: seconds},
		{name: "takes anything", read: func([]byte) (hook.Limit, error) { return 0, nil }},
		{
			name: "needs a digit",
			read: func(raw []byte) (hook.Limit, error) { return hook.LimitOf(int64(raw[0] - '0')), nil },
			want: `CheckExpiration(""): panics`,
		},
		{
			name: "is never without a limit",
			read: func([]byte) (hook.Limit, error) { return -1, nil },
			want: "there is no limit -1",
		},
		{
			name: "answers with the text of an error that is nil",
			read: func([]byte) (hook.Limit, error) { return 0, (*hook.ArgError)(nil) },
			want: "panics: runtime error",
		},
		{
			name: "refuses without a word",
			read: func([]byte) (hook.Limit, error) { return 0, errors.New("") },
			want: `refused with "", want one line`,
		},
		{
			name: "quotes what it got",
			read: func(raw []byte) (hook.Limit, error) { return 0, errors.New("no " + string(raw)) },
			want: `want one line`,
		},
		{
			name: "changes it",
			read: func(raw []byte) (hook.Limit, error) {
				if len(raw) > 0 {
					raw[0] = '7'
				}
				return 0, nil
			},
			want: "changes the property",
		},
		{
			name: "depends on the call",
			read: func([]byte) (hook.Limit, error) { return hook.LimitOf(calls.Add(1)), nil },
			want: "then the limit",
		},
		{
			name: "retains it",
			read: func(raw []byte) (hook.Limit, error) {
				if last != nil && bytes.Equal(last, raw) {
					return known, nil
				}
				n, err := seconds(raw)
				if err == nil {
					last, known = raw, n
				}
				return n, err
			},
			want: `CheckExpiration("1"): got the limit 1000, then the limit 0`,
		},
	} {
		got := record(func(r reporter) { checkExpirations(r, expirations{read: tc.read}) })
		if !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("one that %s: got %.400q, want %q", tc.name, got, tc.want)
		}
	}
}
