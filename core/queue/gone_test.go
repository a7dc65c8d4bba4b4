package queue

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/sdk/hook"
)

// watcher watches the messages with even ids, and remembers what it is told.
type watcher struct{ told []string }

func (w *watcher) hooks() hook.Hooks {
	return hook.Hooks{OnEnqueue: w.enqueue, OnGone: w.gone}
}

func (w *watcher) enqueue(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		vs[i].Watch = idOf(ms[i].Part(hook.PartBody))%2 == 0
	}
}

func (w *watcher) gone(ms []hook.Message) {
	if ms == nil {
		w.told = append(w.told, "all")
	}
	for i := range ms {
		w.told = append(w.told, strconv.FormatUint(idOf(ms[i].Part(hook.PartBody)), 10))
	}
}

func (w *watcher) want(t *testing.T, after, want string) {
	t.Helper()
	if got := strings.Join(w.told, " "); got != want {
		t.Errorf("%s: told %q, want %q", after, got, want)
	}
	w.told = nil
}

// keepsOut decides about all messages by their ids, and forgets what was said before.
type keepsOut struct{ verdicts map[uint64]hook.Verdict }

func (keepsOut) Arguments() []hook.Argument { return nil }

func (k keepsOut) Attach(hook.Queue) hook.Hooks {
	return hook.Hooks{OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			vs[i] = k.verdicts[idOf(ms[i].Part(hook.PartBody))]
		}
	}}
}

// watchedQueue returns a queue with a watcher, which comes before others in the chain.
func watchedQueue(t *testing.T, cfg Config, others ...hook.Plugin) (*Queue, *watcher) {
	t.Helper()
	w := &watcher{}
	q, _ := passive(t, cfg, hook.Hooks{})
	plugins := []chain.Named{{Name: "ttl", Plugin: fixed{ttlHooks(hook.ScanAnywhere, nil)}}, {Name: "watcher", Plugin: unnamed{w.hooks()}}}
	for i, p := range others {
		plugins = append(plugins, chain.Named{Name: fmt.Sprint("other", i), Plugin: p})
	}
	c, err := chain.New(plugins, chain.Options{})
	if err != nil {
		t.Fatal(err)
	}
	q.attach(second, c)
	return q, w
}

// unnamed is a plugin with hooks, and no strategy.
type unnamed struct{ hooks hook.Hooks }

func (unnamed) Arguments() []hook.Argument     { return nil }
func (u unnamed) Attach(hook.Queue) hook.Hooks { return u.hooks }

func TestGoneIsToldOfEachWayOut(t *testing.T) {
	q, w := watchedQueue(t, Config{})
	publish(q, second, 1, 2, 3, 4, 6, 8)
	w.want(t, "enqueue", "")

	c, s := consume(t, q, Consumer{Tag: "c", Prefetch: 4}, 100)
	w.want(t, "delivery", "")
	settleIDs(q, c, s, Ack, 1, 2)
	w.want(t, "ack", "2")
	settleIDs(q, c, s, Reject, 3, 4)
	w.want(t, "reject", "4")
	settleIDs(q, c, s, Requeue, 6)
	w.want(t, "requeue", "")
	q.RemoveConsumers(2*second, nil, c)
	settleIDs(q, c, s, Requeue, 6, 8)
	w.want(t, "requeue without a consumer", "")

	b := batchOf(expiring(10, 1e9), expiring(11, 1e9))
	q.enqueue(2*second, b)
	q.tick(3 * second)
	w.want(t, "expiry", "10")
	checkSums(t, q)

	_, direct := consume(t, q, Consumer{Tag: "n", NoAck: true}, 100)
	wantIDs(t, "without acknowledgement", direct.take(), 6, 8)
	w.want(t, "delivery without acknowledgement", "6 8")
	publish(q, 3*second, 12, 13, 14)
	wantIDs(t, "straight to a consumer", direct.take(), 12, 13, 14)
	w.want(t, "straight to a consumer", "12 14")
	checkSums(t, q)
}

// settleIDs settles deliveries by the ids of their messages.
func settleIDs(q *Queue, c *Consumer, s *sink, kind SettleKind, ids ...uint64) {
	var items []PendingAck
	for _, d := range s.got {
		if slices.Contains(ids, idOf(d.Body)) {
			items = append(items, PendingAck{Ref: d.Ref, Consumer: c})
		}
	}
	q.settleAll(2*second, kind, items)
}

func TestGoneIsToldOfOverflow(t *testing.T) {
	q, w := watchedQueue(t, Config{}, unnamed{hook.Hooks{Length: hook.LimitOf(2)}})
	publish(q, second, 2, 3, 4, 5)
	w.want(t, "overflow", "2")
}

// The verdicts of later plugins keep messages out that an earlier one began to watch: it was not told, and watched them forever.
func TestGoneIsToldOfMessagesThatLaterPluginsKeepOut(t *testing.T) {
	q, w := watchedQueue(t, Config{}, keepsOut{map[uint64]hook.Verdict{
		1: {Action: hook.Refuse}, 2: {Action: hook.Refuse}, 3: {Action: hook.Drop, Reason: hook.ReasonMaxLen}, 4: {Action: hook.Drop, Reason: hook.ReasonMaxLen},
		6: {Action: hook.Route, Reason: hook.ReasonMaxLen, Target: &hook.Target{}}, 8: {Nack: true},
	}})
	publish(q, second, 1, 2, 3, 4, 6, 8, 10)
	w.want(t, "enqueue", "2 4 6")
	q.Purge(second)
	w.want(t, "purge", "all")
	checkSums(t, q)
}

func TestGoneIsToldOfAPurge(t *testing.T) {
	q, w := watchedQueue(t, Config{})
	publish(q, second, 2, 4, 6, 7, 8)
	c, s := consume(t, q, Consumer{Tag: "c", Prefetch: 2}, 100)
	q.Purge(second)
	w.want(t, "purge", "6 8")
	settleIDs(q, c, s, Ack, 2, 4)
	w.want(t, "ack after a purge", "2 4")
	publish(q, second, 10, 11)
	settleIDs(q, c, s, Ack, 10, 11)
	w.want(t, "ack", "10")
	publish(q, second, 12)
	if _, err := q.Delete(false, false); err != nil {
		t.Fatal(err)
	}
	w.want(t, "delete", "all")
}

func TestGoneIsToldWhenItEnds(t *testing.T) {
	q, w := watchedQueue(t, Config{})
	publish(q, second, 2)
	q.attach(second, chainOf(t, hook.Hooks{}))
	w.want(t, "other settings", "all")
	c, s := consume(t, q, Consumer{Tag: "c"}, 100)
	settleIDs(q, c, s, Ack, 2)
	w.want(t, "ack after OnGone was given up", "")
}

// onlyOne drops messages whose body is that of a message in the queue.
type onlyOne struct{ there map[uint64]bool }

func (onlyOne) Arguments() []hook.Argument { return nil }

func (o onlyOne) Attach(hook.Queue) hook.Hooks {
	return hook.Hooks{
		OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				id := idOf(ms[i].Part(hook.PartBody))
				if o.there[id] {
					vs[i] = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonDuplicate, Final: true}
					continue
				}
				o.there[id], vs[i].Watch = true, true
			}
		},
		OnGone: func(ms []hook.Message) {
			for i := range ms {
				delete(o.there, idOf(ms[i].Part(hook.PartBody)))
			}
		},
	}
}

// In one batch, a message was dropped as a duplicate of one that the batch then pushed out of the queue: both were lost.
func TestNoDuplicateOfAMessageThatIsPushedOut(t *testing.T) {
	q, _ := watchedQueue(t, Config{}, onlyOne{map[uint64]bool{}}, unnamed{hook.Hooks{Length: hook.LimitOf(1)}})
	publish(q, second, 1, 2, 2, 1, 3, 1)
	_, s := consume(t, q, Consumer{Tag: "c"}, 100)
	wantIDs(t, "left", s.take(), 1)
	if n := q.Stats().Dropped; n[hook.ReasonDuplicate] != 1 || n[hook.ReasonMaxLen] != 4 {
		t.Errorf("dropped %d duplicates and %d by length, want 1 and 4", n[hook.ReasonDuplicate], n[hook.ReasonMaxLen])
	}
	checkSums(t, q)
}

// A plugin whose settings took OnGone from it was not told so while another plugin of the queue had one: it went on remembering
// messages that had left, and dropped others as their duplicates.
func TestGoneEndsForEachPlugin(t *testing.T) {
	q, w := watchedQueue(t, Config{})
	other := &watcher{}
	chainWith := func(first hook.Hooks) *chain.Chain {
		c, err := chain.New([]chain.Named{
			{Name: "ttl", Plugin: fixed{ttlHooks(hook.ScanAnywhere, nil)}}, {Name: "watcher", Plugin: unnamed{first}}, {Name: "other", Plugin: unnamed{other.hooks()}},
		}, chain.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	q.attach(second, chainWith(w.hooks()))
	publish(q, second, 2)
	q.attach(second, chainWith(w.hooks()))
	w.want(t, "the same settings", "")
	q.attach(second, chainWith(hook.Hooks{}))
	w.want(t, "other settings", "all")
	other.want(t, "other settings of the first one", "")
}

// Messages were still watched when a plugin had lost its OnGone and got it back: it was told of one that it did not know, took it
// for another, and forgot that.
func TestWatchEndsWithOnGone(t *testing.T) {
	q, w := watchedQueue(t, Config{})
	publish(q, second, 2)
	q.attach(second, chainOf(t, hook.Hooks{}))
	w.want(t, "other settings", "all")
	q.attach(second, chainOf(t, w.hooks()))
	publish(q, second, 4)
	c, s := consume(t, q, Consumer{Tag: "c", Prefetch: 2}, 100)
	settleIDs(q, c, s, Ack, 2, 4)
	w.want(t, "ack", "4")
}

// A message was acknowledged to its publisher as the duplicate of one in the same batch that a later plugin refused: neither was
// there.
func TestDuplicateOfARefusedMessage(t *testing.T) {
	duplicate := hook.Verdict{Action: hook.Drop, Reason: hook.ReasonDuplicate, Final: true}
	for _, tc := range []struct {
		name   string
		second hook.Verdict
		want   bool
	}{
		{"refused", hook.Verdict{Action: hook.Refuse}, true},
		{"dead-lettered and refused", hook.Verdict{Action: hook.Route, Reason: hook.ReasonMaxLen, Target: &hook.Target{}, Nack: true}, true},
		{"dropped", hook.Verdict{Action: hook.Drop, Reason: hook.ReasonMaxLen}, false},
		{"kept", hook.Verdict{}, false},
		{"kept, with basic.nack", hook.Verdict{Nack: true}, false},
	} {
		q, _ := watchedQueue(t, Config{}, keepsOut{map[uint64]hook.Verdict{1: duplicate, 2: tc.second, 3: duplicate}})
		ms := []Message{message(1, 0), message(2, 0), message(3, 0)}
		q.takeIn(second, ms)
		if got := ms[2].Flags&Refused != 0; got != tc.want || ms[0].Flags&Refused != 0 {
			t.Errorf("%s: refused %v, want %v", tc.name, got, tc.want)
		}
	}
}

// In one batch, a message was dropped as a duplicate of one that a consumer took and did not have to acknowledge, or of one that
// was due as it entered: the queue had lost that one already.
func TestNoDuplicateOfAMessageThatLeavesAtOnce(t *testing.T) {
	q, _ := watchedQueue(t, Config{}, onlyOne{map[uint64]bool{}})
	_, s := consume(t, q, Consumer{Tag: "c", NoAck: true}, 100)
	publish(q, second, 1, 2, 1, 1)
	wantIDs(t, "delivered", s.take(), 1, 2, 1, 1)
	checkSums(t, q)

	q, _ = watchedQueue(t, Config{}, onlyOne{map[uint64]bool{}})
	q.enqueue(second, batchOf(expiring(1, 0), message(1, 0), message(1, 0)))
	_, s = consume(t, q, Consumer{Tag: "c"}, 100)
	wantIDs(t, "left", s.take(), 1)
	if n := q.Stats().Dropped; n[hook.ReasonDuplicate] != 1 || n[hook.ReasonExpired] != 1 {
		t.Errorf("dropped %d duplicates and %d that were due, want 1 and 1", n[hook.ReasonDuplicate], n[hook.ReasonExpired])
	}
	checkSums(t, q)

	q, _ = watchedQueue(t, Config{}, onlyOne{map[uint64]bool{}})
	q.enqueue(second, batchOf(expiring(1, time.Second)))
	publish(q, 2*second, 1)
	_, s = consume(t, q, Consumer{Tag: "c"}, 100)
	wantIDs(t, "entered when the other was due", s.take(), 1)
	checkSums(t, q)
}

// A message that had to be dead-lettered at least once was watched until its targets had confirmed it: where it came back to its
// queue, it was dropped as the duplicate of itself, and lost.
func TestGoneIsToldOfDiscardsAtOnce(t *testing.T) {
	target := &hook.Target{AtLeastOnce: true}
	q, w := watchedQueue(t, Config{}, keepsOut{map[uint64]hook.Verdict{2: {Action: hook.Route, Reason: hook.ReasonMaxLen, Target: target}}})
	publish(q, second, 2, 4)
	w.want(t, "enqueue", "2")
	if q.waiting() != 1 {
		t.Errorf("%d messages wait for confirms, want 1", q.waiting())
	}
	q.Purge(second)
	w.want(t, "purge", "all")
}
