package wasm

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// picky is a module that keeps messages for a while, and traps on those that have a body.
func picky(millis int64) []byte {
	return assemble(func(b *wt.Builder) {
		b.Batch(8)
		b.Each(abi.OnEnqueue,
			wt.LocalGet(wt.Record), wt.I32Load(abi.RecordSizeOf), wt.If(wt.Unreachable),
			wt.Keep(wt.LocalGet(wt.Record), wt.I64Load(abi.RecordEnqueued), wt.I64(millis), wt.I64Add))
	})
}

// restamp asks about messages that are there, by digest, all with a deadline in an hour, and returns for how many milliseconds
// each of them is to wait.
func restamp(hs hook.Hooks, digests ...uint64) (waits []int64) {
	ms, vs := make([]hook.Message, len(digests)), make([]hook.Verdict, len(digests))
	for i, d := range digests {
		ms[i] = hook.Message{Enqueued: now, Deadline: now.AddMillis(3_600_000), Why: hook.WhyChange}
		guest.SetMessageDigest(&ms[i], d)
	}
	hooktest.Bind(ms)
	hs.OnRestamp(now, ms, vs)
	for i := range vs {
		waits = append(waits, vs[i].Deadline.Sub(now).Milliseconds())
	}
	return waits
}

func wantWaits(t *testing.T, got []int64, want ...int64) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("messages wait for %v ms, want %v", got, want)
			return
		}
	}
}

// A version that was rolled back left messages behind that had no deadline, or one of its own making, and kept it. They are
// asked about again, others are not, and the list says how many and why.
func TestARollbackAsksAgain(t *testing.T) {
	var work sync.WaitGroup
	log, told := lines{}, changes{}
	h := open(t, 1, Env{Log: log.logger(), Go: work.Go})
	h.OnChange(told.note)
	good := load(t, h, "x", ttl(1000), Options{})
	bad := load(t, h, "x", picky(70_000), Options{})
	hs := h.Attach(queue("x", nil))
	for range 3 {
		enqueue1(hs, now, hook.Message{})
	}
	for i := range tolerated {
		if v := enqueue1(hs, now.AddMillis(int64(i)*5000), hook.Message{Size: 1}); v.Deadline != 0 {
			t.Fatalf("got %+v", v)
		}
	}
	work.Wait()
	if got := strings.Join(told.seen, " "); got != "wasm/x wasm/x wasm/x!" {
		t.Fatalf("told %s", got)
	}
	if want := "messages that came while it failed\" policy=x messages=8"; !strings.Contains(log.String(), want) {
		t.Errorf("the log does not say %s:\n%s", want, &log)
	}
	hs = h.Attach(queue("x", nil))
	const hour = 3_600_000
	wantWaits(t, restamp(hs, 0, short(bad), short(good), 77), 1000, 1000, hour, hour)
	i, _ := h.Info("x")
	if i.Undecided != 0 || i.AskedAgain != 2 || i.Renewed != 2 {
		t.Errorf("%d undecided, %d asked again, %d renewed", i.Undecided, i.AskedAgain, i.Renewed)
	}
	if i.RolledBack != bad.Digest || !strings.Contains(i.RolledBackFor, "on_enqueue: ") || i.Digest != good.Digest {
		t.Errorf("rolled back %q for %q", i.RolledBack, i.RolledBackFor)
	}

	load(t, h, "x", ttl(2000), Options{})
	if i, _ = h.Info("x"); i.RolledBackFor != "" || told.seen[3] != "wasm/x" {
		t.Errorf("another version: rolled back for %q, told %v", i.RolledBackFor, told.seen)
	}
	load(t, h, "x", ttl(3000), Options{Recompute: true})
	wantWaits(t, restamp(h.Attach(queue("x", nil)), 0, short(bad), short(good), 77), 3000, 3000, 3000, 3000)
}

// The message of the failure that caused the rollback was once counted only after the review that the rollback began. The review
// reported one message less, and that message seemed never to be checked again.
func TestARollbackCountsTheLastMessage(t *testing.T) {
	log := lines{}
	h := open(t, 1, Env{Log: log.logger(), Go: func(work func()) { work() }})
	load(t, h, "x", ttl(1000), Options{})
	load(t, h, "x", picky(70_000), Options{})
	hs := h.Attach(queue("x", nil))
	for i := range tolerated {
		enqueue1(hs, now.AddMillis(int64(i)*5000), hook.Message{Size: 1})
	}
	if i, _ := h.Info("x"); i.RolledBack == "" || i.Undecided != 0 {
		t.Errorf("rolled back %q, %d undecided", i.RolledBack, i.Undecided)
	}
	if want := fmt.Sprintf("messages that came while it failed\" policy=x messages=%d\n", tolerated); !strings.Contains(log.String(), want) {
		t.Errorf("the log does not say %s:\n%s", want, &log)
	}
}

// What came while the breaker was open is asked about again when it closes, and when another version comes. What makes the
// policy fail then does not open it again.
func TestARecoveryAsksAgain(t *testing.T) {
	var work sync.WaitGroup
	told := changes{}
	h := open(t, 1, Env{Go: work.Go})
	h.OnChange(told.note)
	load(t, h, "x", picky(1000), Options{})
	hs := h.Attach(queue("x", nil))
	at := now
	for range tolerated + 1 {
		enqueue1(hs, at, hook.Message{Size: 1})
		at = at.AddMillis(5000)
	}
	enqueue1(hs, at, hook.Message{})
	if i, _ := h.Info("x"); i.Breaker != "open" || i.Undecided != tolerated+2 {
		t.Fatalf("breaker %s, %d undecided", i.Breaker, i.Undecided)
	}
	enqueue1(hs, at.AddMillis(120_000), hook.Message{})
	work.Wait()
	if got := strings.Join(told.seen, " "); got != "wasm/x wasm/x!" {
		t.Fatalf("told %s", got)
	}
	hs = h.Attach(queue("x", nil))
	wantWaits(t, restamp(hs, 0, 77), 1000, 3_600_000)
	for i := range 2 * tolerated {
		ms := hooktest.Messages(hook.Message{Enqueued: now, Deadline: now + 1, Size: 1, Why: hook.WhyChange})
		vs := make([]hook.Verdict, 1)
		hs.OnRestamp(at.AddMillis(200_000+int64(i)*5000), ms, vs)
		if vs[0].Deadline != now+1 {
			t.Fatalf("got %+v", vs[0])
		}
	}
	if i, _ := h.Info("x"); i.Breaker != "closed" || i.Errors["trap"] == 0 {
		t.Errorf("breaker %s, errors %v", i.Breaker, i.Errors)
	}

	enqueue1(hs, at.AddMillis(400_000), hook.Message{Size: 1})
	load(t, h, "x", ttl(5000), Options{})
	if got := strings.Join(told.seen[2:], " "); got != "wasm/x!" {
		t.Errorf("another version: told %s", got)
	}
	load(t, h, "x", ttl(6000), Options{})
	if got := strings.Join(told.seen[3:], " "); got != "wasm/x" {
		t.Errorf("nothing was in doubt: told %s", got)
	}
}
