package chain

import (
	"errors"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// restampsAll are the hooks of a strategy that sets deadlines anew.
var restampsAll = hook.Hooks{Strategy: true, OnRestamp: func(hook.Instant, []hook.Message, []hook.Verdict) {}}

// reader is a plugin with an expiry strategy that reads the expiration property.
type reader struct {
	strategist
	read func(raw []byte) (hook.Limit, error)
}

func (r reader) CheckExpiration(raw []byte) (hook.Limit, error) { return r.read(raw) }

func TestExpiration(t *testing.T) {
	s := strategist{names: []string{"s"}, fake: fake{hooks: restampsAll}}
	for _, tc := range []struct {
		name    string
		plugins []hook.Plugin
		limit   hook.Limit
		err     string
	}{
		{name: "no plugin reads it", plugins: []hook.Plugin{fake{}}},
		{name: "read", plugins: []hook.Plugin{fake{}, reader{s, func(raw []byte) (hook.Limit, error) {
			return hook.LimitOf(int64(len(raw))), nil
		}}}, limit: hook.LimitOf(3)},
		{name: "refused", plugins: []hook.Plugin{reader{s, func([]byte) (hook.Limit, error) { return hook.LimitOf(5), errors.New("no") }}}, err: "no"},
		{name: "panic", plugins: []hook.Plugin{reader{s, func([]byte) (hook.Limit, error) { panic("oh") }}}, err: "the plugin a failed on it"},
	} {
		c := newChain(t, tc.plugins...)
		limit, err := c.CheckExpiration([]byte("abc"))
		if (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err || err == nil && limit != tc.limit {
			t.Errorf("%s: got %d, %v, want %d, %q", tc.name, limit.N(), err, tc.limit.N(), tc.err)
		}
		h := c.Attach(hooktest.NewQueue(hooktest.Spec{Strategy: "s"}), new(Memo))
		if got := h.Expiration([]byte("abc")); got != tc.limit {
			t.Errorf("%s, restamped: got %d, want %d", tc.name, got.N(), tc.limit.N())
		}
		for _, f := range c.Faults() {
			if f.Point != "CheckExpiration" || f.Panics != 2 {
				t.Errorf("%s: counted %+v", tc.name, f)
			}
		}
	}
}

// A queue whose strategy belongs to another plugin is restamped with expirations, too.
func TestRestampingReadsExpirations(t *testing.T) {
	other := strategist{names: []string{"other"}, fake: fake{hooks: restampsAll}}
	read := reader{strategist{names: []string{"s"}}, func([]byte) (hook.Limit, error) { return hook.LimitOf(7), nil }}
	c := newChain(t, other, read)
	h := c.Attach(hooktest.NewQueue(hooktest.Spec{Strategy: "other"}), new(Memo))
	if got := h.Expiration(nil); got != hook.LimitOf(7) {
		t.Errorf("got %d, want 7", got.N())
	}
}

func TestOnePluginReadsExpirations(t *testing.T) {
	r := reader{read: func([]byte) (hook.Limit, error) { return 0, nil }}
	_, err := New(named(r, fake{}, r), Options{})
	if want := "plugins.c: a already reads the expiration of messages; take one of them out of plugins.chain"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The text of a nil error was made for each message.
func TestReadingWhatPublishersAskForDoesNotAllocate(t *testing.T) {
	reads := reader{strategist{fake: fake{hooks: restampsAll}}, func([]byte) (hook.Limit, error) { return hook.LimitOf(1), nil }}
	holds := holder{names: []string{"x"}, read: func([]any) (hook.Wait, error) { return hook.Wait{After: 1}, nil }}
	c, err := New(named(reads, holds), Options{})
	if err != nil {
		t.Fatal(err)
	}
	raw, values := []byte("1"), []any{nil}
	if n := testing.AllocsPerRun(100, func() {
		_, _ = c.CheckExpiration(raw)
		_, _ = c.ReadHold(0, values)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
