package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// doubter is a strategy that cannot decide about messages while it is broken. Otherwise they wait five seconds from when they entered,
// and seven from when they came back.
type doubter struct {
	broken  bool
	refuses bool     // messages that it cannot decide about
	asked   []string // again: "hook id"
}

const doubtersDigest = 9

func (d *doubter) hooks() hook.Hooks {
	decide := func(m *hook.Message, v *hook.Verdict, until hook.Instant) {
		if d.broken {
			v.Again = true
			return
		}
		*v = guest.Signed(hook.Verdict{Deadline: until}, doubtersDigest)
	}
	note := func(name string, m *hook.Message) {
		if m.Why == hook.WhyAgain {
			d.asked = append(d.asked, fmt.Sprint(name, " ", idOf(m.Part(hook.PartBody))))
		}
	}
	h := ttlHooks(hook.ScanAnywhere, nil)
	h.DeadlineFromReady = true
	h.OnEnqueue = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			if ms[i].Expiration.Set() {
				vs[i].Deadline = now.AddMillis(ms[i].Expiration.N())
			}
			decide(&ms[i], &vs[i], ms[i].Enqueued+5*second)
			if d.broken && d.refuses {
				vs[i].Action = hook.Refuse
			}
		}
	}
	h.OnRestamp = func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			note("restamp", &ms[i])
			guest.Restore(&vs[i], &ms[i])
			decide(&ms[i], &vs[i], ms[i].Enqueued+5*second)
		}
	}
	h.OnRequeue = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			note("requeue", &ms[i])
			decide(&ms[i], &vs[i], now+7*second)
		}
	}
	return h
}

// take returns about which messages the strategy was asked again.
func (d *doubter) take() string {
	slices.Sort(d.asked)
	all := strings.Join(d.asked, ", ")
	d.asked = nil
	return all
}

// undecidedQueue returns a durable queue whose strategy is a doubter.
func undecidedQueue(t *testing.T) (*Queue, *doubter, *host, *memoryJournal) {
	t.Helper()
	d := &doubter{broken: true}
	q, h, j := durable(t, Config{}, d.hooks())
	q.attach(second, hostChain(t, d.hooks()))
	return q, d, h, j
}

func wantAsked(t *testing.T, d *doubter, when, want string) {
	t.Helper()
	if got := d.take(); got != want {
		t.Errorf("%s: asked again %q, want %q", when, got, want)
	}
}

func deadlines(q *Queue) (all []hook.Instant) {
	for l := range q.levels {
		f := &q.levels[l]
		for seq, s := f.messageFrom(0); s != nil; seq, s = f.messageFrom(seq + 1) {
			all = append(all, q.at(ref(l, seq)).deadline())
		}
	}
	return all
}

// A strategy that cannot decide is asked again, after ever longer pauses, also about held messages, and about none that has left.
func TestUndecidedMessagesAreAskedAboutAgain(t *testing.T) {
	q, d, _, _ := undecidedQueue(t)
	held := message(2, 8)
	held.Wait = WaitUntil(500 * second)
	q.enqueue(second, batchOf(message(1, 8), held, message(3, 8), expiring(4, 3*time.Second)))
	q.settleAll(second, Ack, first(q, second))
	if got := q.Stats().Undecided; got != 4 {
		t.Errorf("%d are undecided, want 4", got)
	}
	if at := q.next(); at != 2*second {
		t.Fatalf("next at %d, want in a second", at)
	}
	q.tick(2*second - 1)
	wantAsked(t, d, "too early", "")
	q.tick(2 * second)
	wantAsked(t, d, "a second later", "restamp 2, restamp 3, restamp 4")
	q.tick(3 * second)
	wantAsked(t, d, "two seconds later", "restamp 2, restamp 3, restamp 4")
	q.tick(4 * second) // the deadline that the last one has without a decision
	wantAsked(t, d, "three seconds later", "")

	var after []hook.Instant
	for at := q.next(); at < 300*second; at = q.next() {
		after = append(after, (at-second)/second)
		q.tick(at)
		wantAsked(t, d, "still broken", "restamp 2, restamp 3")
	}
	if want := []hook.Instant{4, 8, 16, 32, 64, 128, 192, 256}; !slices.Equal(after, want) {
		t.Errorf("asked after %v seconds, want %v", after, want)
	}
	d.broken = false
	q.tick(q.next())
	wantAsked(t, d, "it works", "restamp 2, restamp 3")
	if got, want := deadlines(q), []hook.Instant{505 * second}; !slices.Equal(got, want) {
		t.Errorf("the deadlines are %v, want that of the held message, which counts from the end of its hold: %v", got, want)
	}
	if s := q.Stats(); s.Undecided != 0 || s.Held != 1 || q.next() != 500*second {
		t.Errorf("%d undecided, %d held, next at %d", s.Undecided, s.Held, q.next()/second)
	}
}

// first takes the first ready message.
func first(q *Queue, now hook.Instant) (taken []PendingAck) {
	c := &Consumer{}
	q.Get(now, c, func(dl Delivery, _ int) { taken = append(taken, PendingAck{Ref: dl.Ref, Consumer: c}) })
	return taken
}

// A restart forgets neither that a message is undecided nor that it was decided about, and nobody sees the mark.
func TestUndecidedMessagesAreAskedAboutAfterARestart(t *testing.T) {
	q, d, h, j := undecidedQueue(t)
	q.enqueue(second, batchOf(persist(1), persist(2)))
	for range 20 { // a new extent begins
		q.enqueue(second, batchOf(message(9, 0)))
	}
	q.commit(nil)
	for q.Relocate(j.extent - 1) {
	}
	q = j.reborn(t, q)
	if n := q.Stats().Undecided; n != 2 || q.next() != atOnce {
		t.Errorf("%d undecided, next at %d; want 2, at once", n, q.next())
	}
	q.tick(100 * second)
	wantAsked(t, d, "after a restart", "restamp 1, restamp 2")
	q.commit(nil)

	q, d.broken = j.reborn(t, q), false
	q.tick(102 * second)
	wantAsked(t, d, "after another one", "restamp 1, restamp 2")
	q.commit(nil)
	j.check(t, q)
	q = j.reborn(t, q)
	if n := q.Stats().Undecided; n != 0 {
		t.Errorf("%d undecided, which were decided about", n)
	}

	d.broken = true
	q.enqueue(200*second, batchOf(persist(3)))
	q.scanAll(func(m *Stored) {
		if m.Digest != 0 && m.Digest != doubtersDigest {
			t.Errorf("a message has the digest %x", m.Digest)
		}
	})
	q.Purge(200 * second)
	for _, l := range h.left {
		if l.digest != 0 && l.digest != doubtersDigest {
			t.Errorf("told of the digest %x", l.digest)
		}
	}
	var text strings.Builder
	for _, e := range j.entries {
		if _, err := Dump(&text, e.ops); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(text.String(), "returns 0, undecided\n") || strings.Contains(text.String(), "ffffffffffffffff") {
		t.Errorf("the dump does not say what is undecided:\n%s", &text)
	}
}

// scanAll shows all messages.
func (q *Queue) scanAll(show func(*Stored)) {
	var m Stored
	m.begin(q, &pageCopy{})
	for l := range q.levels {
		f := &q.levels[l]
		for seq, s := f.messageFrom(0); s != nil; seq, s = f.messageFrom(seq + 1) {
			m.at(q.at(ref(l, seq)))
			if m.Load() == nil {
				show(&m)
			}
		}
	}
}

// A message that comes back when the strategy cannot decide is asked about as one that came back, unless it is taken again.
func TestUndecidedRequeues(t *testing.T) {
	q, d, _, j := undecidedQueue(t)
	d.broken = false
	q.enqueue(second, batchOf(persist(1), persist(2)))
	taken := seen{}.get(q, second)
	d.broken = true
	q.settleAll(2*second, Requeue, taken)
	if got, want := deadlines(q), []hook.Instant{6 * second, 6 * second}; !slices.Equal(got, want) {
		t.Errorf("the deadlines are %v, want those before: %v", got, want)
	}
	again := first(q, 2*second)
	q.tick(3 * second)
	wantAsked(t, d, "broken", "requeue 2")
	d.broken = false
	q.tick(4 * second)
	wantAsked(t, d, "it works", "requeue 2")
	if got, want := deadlines(q), []hook.Instant{6 * second, 11 * second}; !slices.Equal(got, want) {
		t.Errorf("the deadlines are %v, want %v", got, want)
	}
	q.settleAll(5*second, Ack, again)
	q.tick(5 * second)
	if n := q.Stats().Undecided; n != 0 {
		t.Errorf("%d undecided", n)
	}
	q.commit(nil)
	j.check(t, q)
}

// A queue that is attached again asks at once. A strategy that does not come and go is not asked.
func TestUndecidedMessagesAndOtherStrategies(t *testing.T) {
	q, d, _, _ := undecidedQueue(t)
	q.reconfigure(second, q.cfg, hostChain(t, d.hooks()), false) // it has had no message yet
	q.enqueue(second, batchOf(message(1, 8), message(2, 8)))
	taken := first(q, second)
	q.tick(40 * second)
	d.take()

	q.reconfigure(41*second, q.cfg, chainOf(t, ttlHooks(hook.ScanAnywhere, nil)), false)
	if at := q.next(); at != 0 {
		t.Errorf("next at %d", at)
	}
	q.reconfigure(42*second, q.cfg, hostChain(t, d.hooks()), false)
	q.tick(42 * second)
	wantAsked(t, d, "attached again", "restamp 1, restamp 2")
	d.broken = false
	q.reconfigure(43*second, q.cfg, hostChain(t, d.hooks()), true) // which asks about all
	q.tick(43 * second)
	q.tick(1000 * second)
	wantAsked(t, d, "recomputed", "")
	if got, want := deadlines(q), []hook.Instant{6 * second}; !slices.Equal(got, want) {
		t.Errorf("the deadlines are %v, want that of the message with a consumer: %v", got, want)
	}
	q.settleAll(1000*second, Ack, taken)
}

// A purge leaves the messages of consumers undecided, and an empty queue has none.
func TestUndecidedMessagesAndAPurge(t *testing.T) {
	q, d, _, _ := undecidedQueue(t)
	for i := range uint64(10) {
		q.enqueue(second, batchOf(message(i, 8)))
	}
	taken := first(q, second)
	q.Purge(second)
	q.tick(2 * second)
	wantAsked(t, d, "purged", "restamp 0")
	q.settleAll(2*second, Ack, taken)
	q.tick(3 * second)
	if n := q.Stats().Undecided; n != 0 {
		t.Errorf("%d undecided", n)
	}
}

// What an exchange releases enters although the strategy refuses what it cannot decide about.
func TestUndecidedReleases(t *testing.T) {
	q, d, _, _ := undecidedQueue(t)
	d.refuses = true
	released := message(1, 8)
	released.Released = true
	q.enqueue(second, batchOf(released, message(2, 8)))
	wantStats(t, q, 0, 1, 0)
	d.broken = false
	q.tick(2 * second)
	wantAsked(t, d, "released", "restamp 1")
	if got, want := deadlines(q), []hook.Instant{7 * second}; !slices.Equal(got, want) { // the broker held it for a second
		t.Errorf("the deadlines are %v, want %v", got, want)
	}
}
