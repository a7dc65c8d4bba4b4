package chain

import (
	"strings"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// holder is a plugin that reads holds.
type holder struct {
	fake
	names []string
	read  func(values []any) (hook.Wait, error)
}

func (h holder) HoldHeaders() []string { return h.names }

func (h holder) ReadHold(_ hook.Instant, values []any) (hook.Wait, error) { return h.read(values) }

func TestHoldReaders(t *testing.T) {
	for _, tc := range []struct {
		name    string
		plugins []hook.Plugin
		names   int
		err     string
	}{
		{name: "no plugin", plugins: []hook.Plugin{fake{}}},
		{name: "one that reads nothing beside one that does", plugins: []hook.Plugin{holder{}, holder{names: []string{"x", "y"}}}, names: 2},
		{
			name: "two", plugins: []hook.Plugin{holder{names: []string{"x"}}, holder{names: []string{"y"}}},
			err: "plugins.b: a already reads the holds of messages; take one of them out of plugins.chain",
		},
		{name: "too many headers", plugins: []hook.Plugin{holder{names: strings.Fields("1 2 3 4 5 6 7 8 9")}}, err: "plugins.a: reads holds from 9 headers, at most 8"},
		{name: "a header twice", plugins: []hook.Plugin{holder{names: []string{"x", "x"}}}, err: `plugins.a: reads holds from the header "x", which is empty, already in use or named twice`},
		{name: "the broker's own", plugins: []hook.Plugin{holder{names: []string{"CC"}}}, err: `plugins.a: reads holds from the header "CC", which is empty, already in use or named twice`},
		{name: "no name", plugins: []hook.Plugin{holder{names: []string{""}}}, err: `plugins.a: reads holds from the header "", which is empty, already in use or named twice`},
	} {
		c, err := New(named(tc.plugins...), Options{})
		if tc.err != "" {
			if err == nil || err.Error() != tc.err {
				t.Errorf("%s: got %v, want %s", tc.name, err, tc.err)
			}
			continue
		}
		if err != nil || len(c.HoldHeaders()) != tc.names {
			t.Errorf("%s: got %v, want %d headers", tc.name, err, tc.names)
		}
	}
}

// Whatever a plugin does with a message's headers, the worst that happens is an error for its publisher.
func TestHoldReadersAreContained(t *testing.T) {
	for _, tc := range []struct {
		name string
		read func([]any) (hook.Wait, error)
		want string
	}{
		{"panics", func([]any) (hook.Wait, error) { panic("oh") }, "the plugin a failed on the headers of the message"},
		{"an error that is nil", func([]any) (hook.Wait, error) { return hook.Wait{}, (*hook.ArgError)(nil) }, "the plugin a failed on the headers of the message"},
		{"refuses", func([]any) (hook.Wait, error) { return hook.Wait{After: 5}, &hook.ArgError{Term: "no"} }, "no"},
	} {
		c := newChain(t, holder{names: []string{"x"}, read: tc.read})
		w, err := c.ReadHold(1, []any{nil})
		if err == nil || err.Error() != tc.want || w != (hook.Wait{}) {
			t.Errorf("%s: got %+v, %v, want %s", tc.name, w, err, tc.want)
		}
		if f := c.Faults(); (len(f) == 1 && f[0].Point == "ReadHold") != (tc.want != "no") {
			t.Errorf("%s: counted %+v", tc.name, f)
		}
	}
}
