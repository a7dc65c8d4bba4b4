package dedup

import (
	"strings"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// held is a queue with the plugin's hooks, and the contents of its messages.
type held struct {
	tb     testing.TB
	plugin *plugin
	queue  *hooktest.Queue
	hooks  hook.Hooks
	there  []hooktest.Content
}

func newHeld(tb testing.TB, settings map[string]any) *held {
	tb.Helper()
	p, _ := hooktest.New(tb, Factory, nil).(*plugin)
	h := &held{tb: tb, plugin: p, queue: hooktest.NewQueue(hooktest.Spec{Settings: settings})}
	h.hooks = p.Attach(h.queue)
	return h
}

func (h *held) enqueue(contents ...hooktest.Content) (kept string) {
	h.tb.Helper()
	ms, vs := make([]hook.Message, len(contents)), make([]hook.Verdict, len(contents))
	hooktest.Bind(ms, contents...)
	h.hooks.OnEnqueue(now, ms, vs)
	var b strings.Builder
	for i, v := range vs {
		switch v {
		case hook.Verdict{Watch: true}:
			h.there = append(h.there, contents[i])
			b.WriteByte('w')
		case hook.Verdict{}:
			b.WriteByte('k')
		case hook.Verdict{Action: hook.Drop, Reason: hook.ReasonDuplicate, Final: true}:
			b.WriteByte('d')
		default:
			h.tb.Errorf("message %d: got %+v", i, v)
		}
	}
	return b.String()
}

// leave reports that the i-th watched message leaves.
func (h *held) leave(i int) {
	ms := make([]hook.Message, 1)
	hooktest.Bind(ms, h.there[i])
	h.hooks.OnGone(ms)
}

func (h *held) want(what, got, want string) {
	h.tb.Helper()
	if got != want {
		h.tb.Errorf("%s: got %s, want %s (watched, kept, dropped)", what, got, want)
	}
}

var on = map[string]any{"message-deduplication": true}

func TestQueueHoldsOneOfEach(t *testing.T) {
	h := newHeld(t, on)
	h.want("a batch", h.enqueue(with("a"), with("a"), with("b"), hooktest.Content{}, hooktest.Content{}), "wdwkk")
	h.leave(0)
	h.want("after a has left", h.enqueue(with("a"), with("b"), with("a")), "wdd")
	h.hooks.OnGone(nil)
	h.want("after all have left", h.enqueue(with("a"), with("b")), "ww")
}

// When a redrive's target refused a message, the message was ready again, and a duplicate of it could enter.
func TestKeysOfMessagesThatStay(t *testing.T) {
	h := newHeld(t, on)
	h.want("two", h.enqueue(with("a"), with("b")), "ww")
	h.leave(0)
	h.leave(1)
	h.want("while they move", h.enqueue(with("b")), "w")
	ms, vs := make([]hook.Message, 2), make([]hook.Verdict, 2)
	hooktest.Bind(ms, with("a"), with("b"))
	h.hooks.OnStay(now, ms, vs)
	if !vs[0].Watch || vs[1].Watch {
		t.Errorf("watches %t and %t; the queue has another b, which is watched", vs[0].Watch, vs[1].Watch)
	}
	h.want("when they stay", h.enqueue(with("a"), with("b")), "dd")
	h.leave(0)
	h.want("after a has left", h.enqueue(with("a")), "w")
}

func TestQueueOff(t *testing.T) {
	for _, settings := range []map[string]any{nil, {"message-deduplication": false}, {"message-deduplication": "true"}} {
		if h := newHeld(t, settings); h.hooks.OnEnqueue != nil || h.hooks.OnGone != nil || !h.hooks.Shared {
			t.Errorf("%v: got hooks", settings)
		}
	}
}

func TestQueueHeader(t *testing.T) {
	h := newHeld(t, map[string]any{"x-message-deduplication": true, "deduplication-header": "id"})
	id := hooktest.Content{Headers: map[string]any{"id": int32(7)}}
	h.want("the header that the argument names", h.enqueue(id, id, with("a"), with("a")), "wdkk")
}

// Verdicts of earlier plugins are not changed: such a message does not enter, so others cannot be its duplicates.
func TestOthersVerdictsStay(t *testing.T) {
	h := newHeld(t, on)
	elsewhere := &hook.Target{Exchange: "elsewhere"}
	before := []hook.Verdict{
		{Action: hook.Refuse},
		{Action: hook.Drop, Reason: hook.ReasonExpired},
		{Action: hook.Route, Reason: hook.ReasonExpired, Target: elsewhere},
	}
	ms, vs := make([]hook.Message, len(before)), append([]hook.Verdict(nil), before...)
	hooktest.Bind(ms, with("a"), with("a"), with("a"))
	h.hooks.OnEnqueue(now, ms, vs)
	for i := range vs {
		if vs[i] != before[i] {
			t.Errorf("got %+v, want %+v", vs[i], before[i])
		}
	}
	h.want("the next one", h.enqueue(with("a")), "w")
}

// A change of another setting attaches the plugin again; the queue keeps its keys.
func TestKeysSurviveAChangeOfSettings(t *testing.T) {
	h := newHeld(t, on)
	h.enqueue(with("a"), with("b"))
	h.hooks = h.plugin.Attach(h.queue)
	h.want("after a change", h.enqueue(with("a"), with("b"), with("c")), "ddw")
	h.leave(0)
	h.want("after a has left", h.enqueue(with("a")), "w")
	h.hooks.OnGone(nil)
	if n := len(h.plugin.queues.keys); n != 0 {
		t.Errorf("keys of %d queues are left", n)
	}
	other := hooktest.NewQueue(hooktest.Spec{Settings: on})
	ms, vs := make([]hook.Message, 1), make([]hook.Verdict, 1)
	hooktest.Bind(ms, with("c"))
	h.plugin.Attach(other).OnEnqueue(now, ms, vs)
	if vs[0].Action != hook.Keep {
		t.Error("another queue of the same name has the keys of the first")
	}
}

func TestQueueArguments(t *testing.T) {
	p := hooktest.New(t, Factory, nil)
	for _, tc := range []struct {
		name string
		v    any
		want string
	}{
		{dedupArgument, true, ""},
		{dedupArgument, false, ""},
		{dedupArgument, "true", `"expected boolean, got longstr"`},
		{dedupArgument, int32(1), `"expected boolean, got signedint"`},
		{headerArgument, "id", ""},
		{headerArgument, "", `"expected 1 to 255 bytes"`},
		{headerArgument, strings.Repeat("x", 256), `"expected 1 to 255 bytes"`},
		{headerArgument, true, "{unacceptable_type,bool}"},
	} {
		if got := hooktest.Term(t, p, tc.name, tc.v); got != tc.want {
			t.Errorf("%s %v: got %s, want %s", tc.name, tc.v, got, tc.want)
		}
	}
}
