package wasm

import (
	"testing"
	"time"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// again calls a hook about messages with these sizes again, and returns for each how long after its entry its deadline is; -1 means
// that the message stays in doubt.
func again(ask func(hook.Instant, []hook.Message, []hook.Verdict), at hook.Instant, sizes ...int) []time.Duration {
	ms, vs := make([]hook.Message, len(sizes)), make([]hook.Verdict, len(sizes))
	for i, size := range sizes {
		ms[i] = hook.Message{Enqueued: now, Size: size, Why: hook.WhyAgain}
	}
	hooktest.Bind(ms)
	ask(at, ms, vs)
	left := make([]time.Duration, len(sizes))
	for i := range vs {
		left[i] = vs[i].Deadline.Sub(now)
		if vs[i].Again {
			left[i] = -1
		}
	}
	return left
}

// wantOnly requires that the messages without a body are decided, and the others still in doubt.
func wantOnly(t *testing.T, got []time.Duration, want time.Duration, sizes []int) {
	t.Helper()
	for i, size := range sizes {
		if size == 0 && got[i] != want || size != 0 && got[i] != -1 {
			t.Errorf("message %d of %d, size %d: %s", i, len(sizes), size, got[i])
		}
	}
}

// After a single trap the messages of the following pause were never decided, because no breaker opened and closed.
func TestAfterASingleFailureMessagesAreAskedAboutAgain(t *testing.T) {
	h := open(t, 1, Env{})
	whose := short(load(t, h, "x", picky(1000), Options{OnError: Keep}))
	hs := h.Attach(queue("x", nil))
	if v := enqueue1(hs, now, hook.Message{Size: 1}); !v.Again {
		t.Fatalf("the one that makes it trap: %+v", v)
	}
	for i := range 10 {
		if v := enqueue1(hs, now.AddMillis(int64(i)), hook.Message{}); v != (hook.Verdict{Again: true}) {
			t.Fatalf("message %d: %+v", i, v)
		}
	}
	if i, _ := h.Info("x"); i.Breaker != "closed" || i.Undecided != 11 || i.AskedAgain != 0 {
		t.Errorf("breaker %s, %d undecided, %d asked again", i.Breaker, i.Undecided, i.AskedAgain)
	}
	sizes := make([]int, 11)
	sizes[0] = 1
	wantOnly(t, again(hs.OnRestamp, now.AddMillis(1000), sizes...), time.Second, sizes)
	if i, _ := h.Info("x"); i.Breaker != "closed" || i.Undecided != 1 || i.AskedAgain != 11 || i.Renewed != 10 || i.Instances != 1 {
		t.Errorf("breaker %s, %d undecided, %d asked again, %d renewed, %d instances", i.Breaker, i.Undecided, i.AskedAgain, i.Renewed, i.Instances)
	}
	if v := enqueue1(hs, now.AddMillis(1000), hook.Message{}); v.Again || guest.Digest(&v) != whose {
		t.Errorf("a message that comes then: %+v", v)
	}
}

// Messages on which the module fails keep no others from their deadlines, wherever they are and by whichever hook the module is called.
func TestAskingAgainGoesAroundFailures(t *testing.T) {
	single := assemble(func(b *wt.Builder) {
		b.Single()
		b.Has(abi.Deadline.String(), wt.LocalGet(5), wt.If(wt.Unreachable), wt.I64(nowMillis+1000))
	})
	for name, module := range map[string][]byte{"on_enqueue": picky(1000), "deadline": single} {
		h := open(t, 1, Env{})
		load(t, h, "x", module, Options{})
		hs := h.Attach(queue("x", nil))
		sizes := make([]int, 256)
		for _, i := range []int{0, 63, 64, 100, 255} {
			sizes[i] = 1
		}
		got := again(hs.OnRestamp, now.AddMillis(1000), sizes...)
		for pass := int64(2); pass < 10; pass++ { // as many calls as may fail are not enough at once
			var left []int
			for i := range got {
				if got[i] == -1 {
					left = append(left, sizes[i])
				}
			}
			if len(left) == 5 {
				break
			}
			next := again(hs.OnRestamp, now.AddMillis(pass*1000), left...)
			for i, k := 0, 0; i < len(got); i++ {
				if got[i] == -1 {
					got[i] = next[k]
					k++
				}
			}
		}
		t.Run(name, func(t *testing.T) { wantOnly(t, got, time.Second, sizes) })
		if i, _ := h.Info("x"); i.Breaker != "closed" {
			t.Errorf("%s: the breaker is %s", name, i.Breaker)
		}
	}
}

// A module whose instances take long to make has none for a while after each failure. A message on which it fails does not come first
// each time.
func TestAskingAgainWithOneInstance(t *testing.T) {
	var building []func()
	h := open(t, 1, Env{Go: func(f func()) { building = append(building, f) }})
	load(t, h, "x", picky(1000), Options{})
	h.table.Load().policies["x"].active.Load().initFuel = 1 << 40
	hs := h.Attach(queue("x", nil))
	sizes := make([]int, 64)
	sizes[0] = 1
	seconds := 0
	for at := now; len(sizes) > 1; at = at.AddMillis(1000) {
		if seconds++; seconds > 64 {
			t.Fatalf("%d messages are left", len(sizes))
		}
		for _, f := range building {
			f()
		}
		building = nil
		var left []int
		for i, d := range again(hs.OnRestamp, at, sizes...) {
			if d == -1 {
				left = append(left, sizes[i])
			}
		}
		sizes = left
	}
	if sizes[0] != 1 {
		t.Error("the message that makes it fail was decided about")
	}
}

// The cost of calling again is limited, whatever the messages are.
func TestAskingAgainIsLimited(t *testing.T) {
	h := open(t, 2, Env{})
	load(t, h, "x", failing(), Options{})
	hs := h.Attach(queue("x", nil))
	failures := func(at hook.Instant) uint64 {
		before, _ := h.Info("x")
		for range 100 {
			again(hs.OnRestamp, at, make([]int, 64)...)
		}
		i, _ := h.Info("x")
		return i.Errors["trap"] - before.Errors["trap"]
	}
	if n := failures(now); n != retryBurst {
		t.Errorf("%d calls have failed at once, want %d", n, retryBurst)
	}
	if n := failures(now.Add(retryPause - 1)); n != 0 {
		t.Errorf("then %d calls have failed at once, want none", n)
	}
	if n := failures(now.Add(3 * retryPause)); n != 3 {
		t.Errorf("then %d calls have failed, want 3", n)
	}
}

// A failing version is rolled back as soon as it would be without repeated calls. Pauses after failures of repeated calls used to prevent
// other calls, and so the breaker from opening; if such failures counted, a single message could open it.
func TestAskingAgainDoesNotMoveARollback(t *testing.T) {
	const step = 10 // milliseconds
	rolledBack := func(asking bool) (millis int64, asked uint64) {
		h := open(t, 1, Env{})
		load(t, h, "x", ttl(1000), Options{})
		load(t, h, "x", failing(), Options{})
		hs := h.Attach(queue("x", nil))
		for millis = 0; millis < 60_000; millis += step {
			at := now.AddMillis(millis)
			if asking {
				again(hs.OnRestamp, at, make([]int, 64)...)
			}
			enqueue1(hs, at, hook.Message{})
			i, _ := h.Info("x")
			if i.RolledBack != "" {
				return millis, i.AskedAgain
			}
		}
		return -1, 0
	}
	without, _ := rolledBack(false)
	with, asked := rolledBack(true)
	if without < 0 || with != without || asked == 0 {
		t.Errorf("rolled back after %d ms, and after %d ms when it was asked again about %d messages", without, with, asked)
	}

	h := open(t, 1, Env{})
	load(t, h, "x", ttl(1000), Options{})
	load(t, h, "x", picky(1000), Options{})
	hs := h.Attach(queue("x", nil))
	for i := range int64(1000) {
		again(hs.OnRestamp, now.AddMillis(step*i), 1)
	}
	if i, _ := h.Info("x"); i.RolledBack != "" || i.Breaker != "closed" || i.Errors["trap"] < 50 {
		t.Errorf("a message that is asked about again: rolled back %q, breaker %s, errors %v", i.RolledBack, i.Breaker, i.Errors)
	}
}

// While the breaker is open no calls are made. When it allows a trial, a repeated call may be that trial.
func TestAskingAgainIsATrial(t *testing.T) {
	told := changes{}
	h := open(t, 1, Env{Go: func(work func()) { work() }})
	h.OnChange(told.note)
	load(t, h, "x", picky(1000), Options{})
	hs := h.Attach(queue("x", nil))
	for i := range tolerated {
		enqueue1(hs, now.AddMillis(int64(i)*5000), hook.Message{Size: 1})
	}
	until := hook.Instant(h.table.Load().policies["x"].active.Load().breaker.until.Load())
	if got := again(hs.OnRestamp, until-1, 0); got[0] != -1 {
		t.Errorf("asked while the breaker is open: %s", got[0])
	}
	if i, _ := h.Info("x"); i.AskedAgain != 0 || i.Undecided != tolerated || i.Errors["unavailable"] != 0 {
		t.Errorf("%d asked again, %d undecided, errors %v", i.AskedAgain, i.Undecided, i.Errors)
	}
	if got := again(hs.OnRestamp, until, 0); got[0] != time.Second {
		t.Errorf("as a trial: %s", got[0])
	}
	if i, _ := h.Info("x"); i.Breaker != "closed" || len(told.seen) != 2 {
		t.Errorf("the breaker is %s, told %v", i.Breaker, told.seen)
	}
}

// A failed on_requeue leaves the deadline unchanged, and is repeated as on_requeue.
func TestAFailedRequeueIsAskedAboutAgain(t *testing.T) {
	h := open(t, 1, Env{})
	load(t, h, "x", assemble(func(b *wt.Builder) {
		b.Batch(8)
		b.Each(abi.OnRequeue,
			wt.LocalGet(wt.Record), wt.I32Load(abi.RecordSizeOf), wt.If(wt.Unreachable),
			wt.Keep(wt.LocalGet(wt.Record), wt.I64Load(abi.RecordEnqueued), wt.I64(1000), wt.I64Add))
	}), Options{OnError: Reject})
	hs := h.Attach(queue("x", nil))
	come := func(size int) hook.Verdict {
		m := hook.Message{Enqueued: now, Deadline: now + 5, Size: size, Why: hook.WhyRequeue}
		guest.SetMessageDigest(&m, 77)
		vs := make([]hook.Verdict, 1)
		guest.Restore(&vs[0], &m)
		hs.OnRequeue(now, hooktest.Messages(m), vs)
		return vs[0]
	}
	if got, want := come(1), guest.Signed(hook.Verdict{Again: true, Deadline: now + 5}, 77); got != want {
		t.Errorf("it traps: got %+v, want %+v", got, want)
	}
	if got, want := come(0), guest.Signed(hook.Verdict{Again: true, Deadline: now + 5}, 77); got != want {
		t.Errorf("there is no instance: got %+v, want %+v", got, want)
	}
	if got := again(hs.OnRequeue, now.AddMillis(1000), 1, 0); got[0] != -1 || got[1] != time.Second {
		t.Errorf("again: got %v", got)
	}
	if i, _ := h.Info("x"); i.Undecided != 1 || i.AskedAgain != 2 {
		t.Errorf("%d undecided, %d asked again", i.Undecided, i.AskedAgain)
	}
}

// Without a module messages stay in doubt, as with a failing one. The queues know their number.
func TestInDoubtWithoutAModule(t *testing.T) {
	there := 3
	h := open(t, 1, Env{Undecided: func(strategy string) int {
		if strategy != "wasm/x" {
			t.Errorf("asked about %s", strategy)
		}
		return there
	}})
	p := &policy{name: "x", origin: Loaded, absentAs: Keep}
	h.addNow(p)
	hs := h.Attach(queue("x", nil))
	if v := enqueue1(hs, now, hook.Message{}); v != (hook.Verdict{Again: true}) {
		t.Errorf("got %+v", v)
	}
	for _, ask := range []func(hook.Instant, []hook.Message, []hook.Verdict){hs.OnRestamp, h.Attach(queue("x", nil)).OnRestamp} {
		if got := again(ask, now.AddMillis(1000), 0); got[0] != -1 {
			t.Errorf("again: got %s", got[0])
		}
	}
	if i, _ := h.Info("x"); i.Undecided != 3 {
		t.Errorf("%d undecided, want 3", i.Undecided)
	}
	there = 0 // they have left
	if i, _ := h.Info("x"); i.Undecided != 0 || p.undecided.Load() != 0 {
		t.Errorf("%d undecided, %d are counted", i.Undecided, p.undecided.Load())
	}
}
