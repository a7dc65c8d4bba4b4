package wasm

import (
	"slices"
	"strings"
	"testing"
	"time"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// answer is a verdict as a guest writes it. nil fields are not written.
type answers struct {
	action, flags int
	until, state  *int64
	exchange, key string
	strings, lens *int
}

// code returns code for Each that writes the answer.
func (a answers) code(b *wt.Builder) []byte {
	code := wt.Act(a.action)
	store := func(value, instruction []byte) {
		code = slices.Concat(code, wt.LocalGet(wt.Verdict), value, instruction)
	}
	store(wt.I32(a.flags), wt.I32Store(abi.VerdictFlags))
	if a.until != nil {
		store(wt.I64(*a.until), wt.I64Store(abi.VerdictUntil))
	}
	if a.state != nil {
		store(wt.I64(*a.state), wt.I64Store(abi.VerdictState))
	}
	at, exchange, key := wt.Scratch, len(a.exchange), len(a.key)
	if a.exchange+a.key != "" {
		b.Data(at, a.exchange+a.key)
	}
	if a.strings != nil {
		at = *a.strings
	}
	if a.lens != nil {
		exchange, key = *a.lens, *a.lens
	}
	store(wt.I32(at), wt.I32Store(abi.VerdictStrings))
	store(wt.I32(exchange), wt.I32Store16(abi.VerdictExchangeLen))
	store(wt.I32(key), wt.I32Store16(abi.VerdictKeyLen))
	return code
}

// says is a module whose hooks all give the same answer. Without later it has no on_deadline.
func says(a answers, later bool) []byte {
	return assemble(func(b *wt.Builder) {
		code := a.code(b)
		b.Batch(4)
		for _, h := range []abi.Hook{abi.OnEnqueue, abi.OnDeadline, abi.OnHead, abi.OnRequeue} {
			if h != abi.OnDeadline || later {
				b.Each(h, code)
			}
		}
	})
}

func TestVerdicts(t *testing.T) {
	const second = int64(1000)
	at := func(millis int64) hook.Instant { return now + hook.Instant(millis)*1_000_000 } // now also has a part below a millisecond
	inForce := now.Add(time.Hour)
	expired := hook.Verdict{Action: hook.Drop, Reason: hook.ReasonExpired}
	dropped := hook.Verdict{Action: hook.Drop, Reason: hook.ReasonExpired, Final: true}
	routed := func(t hook.Target) hook.Verdict {
		return hook.Verdict{Action: hook.Route, Reason: hook.ReasonExpired, Target: &t}
	}
	keep := func(t hook.Instant) hook.Verdict { return hook.Verdict{Deadline: t} }
	for _, tc := range []struct {
		name  string
		says  answers
		enter hook.Verdict // of a message without expiration, on a queue with a TTL of 2 s
		due   hook.Verdict
		head  hook.Verdict
		back  hook.Verdict
		bad   string
	}{
		{
			name: "nothing", says: answers{action: abi.NoOpinion},
			enter: keep(at(2 * second)), due: expired, head: keep(inForce), back: keep(inForce),
		},
		{
			name: "keep", says: answers{action: abi.Keep},
			enter: keep(0), due: keep(0), head: keep(inForce), back: keep(inForce),
		},
		{
			name: "keep for ever", says: answers{action: abi.Keep, until: new(int64(-1))},
			enter: keep(0), due: keep(0), head: keep(0), back: keep(0),
		},
		{
			name: "keep for a second", says: answers{action: abi.Keep, until: new(nowMillis + second)},
			enter: keep(at(second)), due: keep(at(second)), head: keep(at(second)), back: keep(at(second)),
		},
		{
			name: "keep until now", says: answers{action: abi.Keep, until: new(nowMillis)},
			enter: keep(now), due: expired, head: expired, back: keep(now),
		},
		{
			name: "keep until before", says: answers{action: abi.Keep, until: new(nowMillis - second)},
			enter: keep(at(-second)), due: expired, head: expired, back: keep(at(-second)),
		},
		{
			name: "keep beyond what nanoseconds hold", says: answers{action: abi.Keep, until: new(int64(abi.Latest))},
			enter: keep(1<<63 - 1), due: keep(1<<63 - 1), head: keep(1<<63 - 1), back: keep(1<<63 - 1),
		},
		{
			name: "state and head", says: answers{action: abi.Keep, flags: abi.SetState | abi.AskAtHead, state: new(int64(-7))},
			enter: hook.Verdict{State: -7, AskHead: true}, due: hook.Verdict{State: -7, AskHead: true},
			head: hook.Verdict{Deadline: inForce, State: -7, AskHead: true}, back: hook.Verdict{Deadline: inForce, State: -7, AskHead: true},
		},
		{
			name: "state without saying so", says: answers{action: abi.Keep, state: new(int64(-7))},
			enter: keep(0), due: keep(0), head: keep(inForce), back: keep(inForce),
		},
		{name: "expire", says: answers{action: abi.Expire}, enter: expired, due: expired, head: expired, back: keep(now)},
		{name: "drop", says: answers{action: abi.Drop}, enter: dropped, due: dropped, head: dropped, back: keep(now)},
		{
			name: "dead-letter", says: answers{action: abi.DeadLetter, exchange: "dlx.", key: "ä", until: new(int64(-1))},
			enter: routed(hook.Target{Exchange: "dlx.", Key: "ä", HasKey: true}), due: routed(hook.Target{Exchange: "dlx.", Key: "ä", HasKey: true}),
			head: routed(hook.Target{Exchange: "dlx.", Key: "ä", HasKey: true}), back: keep(now),
		},
		{
			name: "dead-letter to the default exchange, with its own key", says: answers{action: abi.DeadLetter, until: new(int64(0))},
			enter: routed(hook.Target{}), due: routed(hook.Target{}), head: routed(hook.Target{}), back: keep(now),
		},
		{
			name: "dead-letter later", says: answers{action: abi.DeadLetter, exchange: "x", until: new(nowMillis + second)},
			enter: keep(at(second)), due: keep(at(second)), head: keep(at(second)), back: keep(at(second)),
		},
		{
			name: "requeue", says: answers{action: abi.Requeue, until: new(int64(-1))},
			enter: keep(at(second)), due: keep(at(second)), head: keep(at(second)), back: keep(at(second)),
		},
		{ // until is the deadline in force where there is one, and nobody has said otherwise
			name: "dead-letter without a time", says: answers{action: abi.DeadLetter},
			enter: routed(hook.Target{}), due: routed(hook.Target{}), head: keep(inForce), back: keep(inForce),
		},
		{
			name: "requeue without a time", says: answers{action: abi.Requeue},
			enter: keep(at(second)), due: keep(at(second)), head: keep(inForce), back: keep(inForce),
		},
		{
			name: "requeue later", says: answers{action: abi.Requeue, until: new(nowMillis + 3*second)},
			enter: keep(at(3 * second)), due: keep(at(3 * second)), head: keep(at(3 * second)), back: keep(at(3 * second)),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := open(t, 1, Env{})
			whose := short(load(t, h, "x", says(tc.says, true), Options{Grants: []string{"route"}}))
			hs := h.Attach(queue("x", map[string]any{"message-ttl": int32(2000)}))
			back := []hook.Verdict{{Deadline: inForce}}
			hs.OnRequeue(now, hooktest.Messages(hook.Message{Enqueued: now, Deadline: inForce, Why: hook.WhyRequeue}), back)
			for _, got := range []struct {
				what      string
				got, want hook.Verdict
			}{
				{"on_enqueue", enqueue1(hs, now, hook.Message{}), tc.enter},
				{"on_deadline", head1(hs, now, hook.Message{Enqueued: now, Deadline: now, Why: hook.WhyDue}), tc.due},
				{"on_head", head1(hs, now, hook.Message{Enqueued: now, Deadline: inForce, Why: hook.WhyHead}), tc.head},
				{"on_requeue", back[0], tc.back},
			} {
				if got.what == "on_deadline" && got.want.Action != hook.Keep {
					got.want.Deadline = now // in force
				}
				if got.what == "on_head" && got.want.Action != hook.Keep {
					got.want.Deadline = inForce
				}
				if at := got.want.Deadline; got.want.Action == hook.Keep && at != 0 && at != inForce && tc.says.action != abi.NoOpinion {
					guest.SetDigest(&got.want, whose)
				}
				if !same(got.got, got.want) {
					t.Errorf("%s: got %+v, want %+v", got.what, got.got, got.want)
				}
			}
			if i, _ := h.Info("x"); i.LastError != "" || i.Calls != 4 {
				t.Errorf("got %+v", i)
			}
		})
	}
}

// same compares verdicts; targets are compared by their content.
func same(a, b hook.Verdict) bool {
	if a.Target != nil && b.Target != nil && *a.Target == *b.Target {
		a.Target = b.Target
	}
	return a == b
}

// An invalid verdict counts as none, for that message alone.
func TestBadVerdicts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		says   answers
		later  bool
		grants []string
		want   string
	}{
		{name: "action", says: answers{action: 5}, want: "there is no action 5"},
		{name: "large action", says: answers{action: -1}, want: "there is no action 4294967295"},
		{name: "flags", says: answers{flags: 4}, want: "there are no flags 0x4"},
		{name: "seconds", says: answers{until: new(nowMillis / 1000)}, want: "until 1700000000 is no time in milliseconds since 1970; accepted are -1 and 100000000000 to 253402300799999"},
		{name: "nanoseconds", says: answers{until: new(int64(now))}, want: "until 1700000000123456789 is no time"},
		{name: "zero", says: answers{until: new(int64(0))}, want: "until 0 is no time"},
		{name: "negative", says: answers{until: new(int64(-2))}, want: "until -2 is no time"},
		{name: "requeue", says: answers{action: abi.Requeue, until: new(int64(5))}, want: "until 5 is no time"},
		{name: "dead-letter at no time", says: answers{action: abi.DeadLetter, until: new(int64(5))}, grants: []string{"route"}, want: "until 5 is no time"},
		{name: "dead-letter without a grant", says: answers{action: abi.DeadLetter}, want: "to dead-letter a message needs the grant route"},
		{name: "dead-letter later without a hook", says: answers{action: abi.DeadLetter, until: new(nowMillis + 1)}, grants: []string{"route"}, want: "to dead-letter a message later needs the hook on_deadline"},
		{name: "long strings", says: answers{action: abi.DeadLetter, lens: new(256)}, grants: []string{"route"}, want: "have 256 and 256 bytes; accepted are up to 255 each"},
		{name: "strings elsewhere", says: answers{action: abi.DeadLetter, strings: new(65535), lens: new(1)}, grants: []string{"route"}, want: "2 bytes at 0xffff, are not in its memory"},
		{name: "strings far away", says: answers{action: abi.DeadLetter, strings: new(-1), lens: new(255)}, grants: []string{"route"}, want: "510 bytes at 0xffffffff, are not in its memory"},
		{name: "no UTF-8", says: answers{action: abi.DeadLetter, exchange: "\xff"}, grants: []string{"route"}, want: "exchange or routing key is not UTF-8"},
	} {
		for _, onError := range []OnError{Builtin, Keep, Reject} {
			h := open(t, 1, Env{})
			load(t, h, "x", says(tc.says, tc.later), Options{Grants: tc.grants, OnError: onError})
			hs := h.Attach(queue("x", map[string]any{"message-ttl": int32(2000)}))
			got := enqueue1(hs, now, hook.Message{Expiration: hook.LimitOf(500)})
			want := map[OnError]hook.Verdict{Builtin: {Again: true, Deadline: now.AddMillis(500)}, Keep: {Again: true}, Reject: {Action: hook.Refuse, Again: true}}[onError]
			if got != want {
				t.Errorf("%s, %s: got %+v, want %+v", tc.name, onError, got, want)
			}
			i, _ := h.Info("x")
			if i.Errors["verdict"] != 1 || !strings.Contains(i.LastError, tc.want) || i.Calls != 1 || i.Breaker != "closed" {
				t.Errorf("%s: got %d errors, the last %q, want %q", tc.name, i.Errors["verdict"], i.LastError, tc.want)
			}
		}
	}
}

// One invalid verdict in a batch does not affect the others.
func TestOneBadVerdict(t *testing.T) {
	h := open(t, 1, Env{})
	whose := short(load(t, h, "x", assemble(func(b *wt.Builder) {
		b.Batch(8)
		b.Each(abi.OnEnqueue, wt.LocalGet(wt.Verdict), wt.LocalGet(wt.Record), wt.I32Load8U(abi.RecordPriority), wt.I32Store(abi.VerdictAction))
	}), Options{}))
	ms, vs := make([]hook.Message, 20), make([]hook.Verdict, 20)
	for i := range ms {
		ms[i] = hook.Message{Enqueued: now, Priority: uint8(i % 10), Expiration: hook.LimitOf(7)}
	}
	hooktest.Bind(ms)
	h.Attach(queue("x", nil)).OnEnqueue(now, ms, vs)
	for i, v := range vs {
		want := hook.Verdict{Again: true, Deadline: now.AddMillis(7)} // the verdict of the broker
		switch i % 10 {
		case abi.Keep:
			want = hook.Verdict{}
		case abi.Expire:
			want = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonExpired}
		case abi.Requeue:
			want = guest.Signed(hook.Verdict{Deadline: now.AddMillis(1000)}, whose)
		case abi.Drop:
			want = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonExpired, Final: true}
		}
		if v != want {
			t.Errorf("message %d: got %+v, want %+v", i, v, want)
		}
	}
	if i, _ := h.Info("x"); i.Errors["verdict"] != 12 || i.Calls != 3 || i.Messages != 20 {
		t.Errorf("got %+v", i)
	}
}

// The decision of an earlier plugin stays, and so does its earlier deadline.
func TestPredecessors(t *testing.T) {
	h := open(t, 1, Env{})
	whose := short(load(t, h, "x", ttl(1000), Options{}))
	hs := h.Attach(queue("x", nil))
	before := []hook.Verdict{
		{Action: hook.Drop, Reason: hook.ReasonMaxLen},
		{},
		{Deadline: now + 1},
		{Deadline: now.Add(time.Hour)},
		{Action: hook.Route, Reason: hook.ReasonMaxLen, Target: &hook.Target{}},
	}
	after := slices.Clone(before)
	after[1] = guest.Signed(hook.Verdict{Deadline: now.AddMillis(1000)}, whose)
	after[3] = after[1]
	ms := make([]hook.Message, len(before))
	for i := range ms {
		ms[i].Enqueued = now
	}
	hooktest.Bind(ms)
	hs.OnEnqueue(now, ms, before)
	if !slices.Equal(before, after) {
		t.Errorf("got %+v, want %+v", before, after)
	}
}

// Restamp gives messages the verdict that they would get if they entered now. If the policy fails, they keep their own.
func TestRestamp(t *testing.T) {
	was := hook.Message{Enqueued: now.AddMillis(-4), Deadline: now.Add(time.Hour), State: 4, Why: hook.WhyChange, Expiration: hook.LimitOf(30)}
	guest.SetMessageDigest(&was, 77)
	for _, tc := range []struct {
		name   string
		module []byte
		want   hook.Verdict
		its    bool // the deadline is the module's
	}{
		{"keep", says(answers{action: abi.Keep, until: new(nowMillis + 1)}, true), hook.Verdict{Deadline: now.AddMillis(1), State: 4}, true},
		{"the same", says(answers{action: abi.Keep, until: new(millis(was.Deadline))}, true), hook.Verdict{Deadline: was.Deadline, State: 4}, true},
		{"state", says(answers{action: abi.Keep, flags: abi.SetState, state: new(int64(5))}, true), hook.Verdict{State: 5}, false},
		{"nothing", says(answers{action: abi.NoOpinion}, true), hook.Verdict{Deadline: was.Enqueued.AddMillis(30), State: 4}, false},
		{"drop", says(answers{action: abi.Drop}, true), hook.Verdict{Deadline: now, State: 4}, true},
		{"nonsense", says(answers{action: 9}, true), guest.Signed(hook.Verdict{Deadline: was.Deadline, State: 4}, 77), false},
		{"trap", assemble(func(b *wt.Builder) { b.Batch(8); b.Each(abi.OnEnqueue, wt.Unreachable) }), guest.Signed(hook.Verdict{Deadline: was.Deadline, State: 4}, 77), false},
		{"batch", ttl(10), hook.Verdict{Deadline: was.Enqueued.AddMillis(10), State: 4}, true},
		{"single", singleTTL(10), hook.Verdict{Deadline: was.Enqueued.AddMillis(10), State: 4}, true},
	} {
		h := open(t, 1, Env{})
		if i := load(t, h, "x", tc.module, Options{}); tc.its {
			guest.SetDigest(&tc.want, short(i))
		}
		hs := h.Attach(queue("x", nil))
		vs := make([]hook.Verdict, 1)
		hs.OnRestamp(now, hooktest.Messages(was), vs)
		if vs[0] != tc.want {
			t.Errorf("%s: got %+v, want %+v", tc.name, vs[0], tc.want)
		}
	}
}

func TestIdle(t *testing.T) {
	start := hook.Verdict{Deadline: now.Add(time.Hour)} // the verdict of expires
	for _, tc := range []struct {
		name   string
		answer int64
		want   hook.Verdict
		bad    uint64
	}{
		{name: "delete", answer: abi.IdleDelete, want: hook.Verdict{Action: hook.Drop, Reason: hook.ReasonQueueExpired, Deadline: start.Deadline}},
		{name: "never", answer: abi.IdleNever},
		{name: "no opinion", answer: abi.IdleNoOpinion, want: start},
		{name: "later", answer: nowMillis + 5000, want: hook.Verdict{Deadline: now.AddMillis(5000)}},
		{name: "before", answer: nowMillis - 5000, want: hook.Verdict{Deadline: now.AddMillis(1000)}},
		{name: "nonsense", answer: 12, want: start, bad: 1},
		{name: "other nonsense", answer: -3, want: start, bad: 1},
	} {
		h := open(t, 1, Env{})
		load(t, h, "x", assemble(func(b *wt.Builder) { b.Single(); b.Has(abi.OnIdle.String(), wt.I64(tc.answer)) }), Options{})
		got := start
		h.Attach(queue("x", nil)).OnIdle(now, time.Second, &got)
		if i, _ := h.Info("x"); got != tc.want || i.Errors["verdict"] != tc.bad {
			t.Errorf("%s: got %+v, %d bad, want %+v", tc.name, got, i.Errors["verdict"], tc.want)
		}
	}
}

// on_idle gets the time for which the queue has been idle, and its counts of messages.
func TestIdleParameters(t *testing.T) {
	h := open(t, 1, Env{})
	load(t, h, "x", assemble(func(b *wt.Builder) {
		b.Single()
		sum := wt.LocalGet(0)
		for i, weight := range []int64{1, 1000, 1_000_000, 1_000_000_000} {
			part := wt.LocalGet(i + 1)
			if i > 0 {
				part = append(part, wt.I64Extend...)
			}
			sum = slices.Concat(sum, part, wt.I64(weight), wt.I64Mul, wt.I64Add)
		}
		b.Has(abi.OnIdle.String(), sum)
	}), Options{})
	q := hooktest.NewQueue(hooktest.Spec{Strategy: "wasm/x", Ready: 2, Unacked: 3, Consumers: 4})
	hs := h.Attach(q)
	var got hook.Verdict
	hs.OnIdle(now, 7*time.Millisecond, &got)
	if want := now.AddMillis(4_003_002_007); got.Deadline != want || hs.Shared {
		t.Errorf("got %d ms, want %d", (got.Deadline-now)/1_000_000, (want-now)/1_000_000)
	}
}

// While on_idle fails, other plugins say whether a queue may stay, unless the
// policy's settings have everything stay; and it is asked again.
func TestIdleFails(t *testing.T) {
	trap := assemble(func(b *wt.Builder) { b.Single(); b.Has(abi.OnIdle.String(), wt.Unreachable) })
	remove := hook.Verdict{Action: hook.Drop, Reason: hook.ReasonQueueExpired}
	retry := hook.Verdict{Deadline: now.AddMillis(retryMillis)}
	for _, tc := range []struct {
		name    string
		onError OnError
		before  hook.Verdict
		want    hook.Verdict
	}{
		{"nobody else", Builtin, hook.Verdict{}, retry},
		{"another deletes it", Builtin, remove, remove},
		{"another does so later", Builtin, hook.Verdict{Deadline: now + 7}, hook.Verdict{Deadline: now + 7}},
		{"it is to stay", Keep, remove, retry},
	} {
		h := open(t, 1, Env{})
		load(t, h, "x", trap, Options{OnError: tc.onError})
		hs := h.Attach(queue("x", nil))
		for range 2 { // the second time there is no instance
			got := tc.before
			if hs.OnIdle(now, time.Second, &got); got != tc.want {
				t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
			}
		}
		if i, _ := h.Info("x"); i.Errors["trap"] != 1 || i.Errors["unavailable"] != 1 {
			t.Errorf("%s: got %v", tc.name, i.Errors)
		}
	}
}
