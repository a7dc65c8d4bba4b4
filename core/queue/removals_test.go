package queue

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// Whatever happens to a queue, its host is told of every message that left for a reason, once, and of no other: as many as it
// counts.
func TestEveryMessageThatLeavesIsToldOnce(t *testing.T) {
	for _, scan := range []hook.Scan{hook.ScanAnywhere, hook.ScanHeads, hook.ScanTop, hook.ScanLazy} {
		for seed := range uint64(12) {
			t.Run(fmt.Sprintf("scan%d/seed%d", scan, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { newCensor(t, scan, seed).play() })
			})
		}
	}
}

// censor drives a queue by random operations. It is the queue's host, and notes what that is told.
type censor struct {
	t   *testing.T
	rng *rand.Rand // of the test's goroutine
	q   *Mailbox
	id  uint64

	mu     sync.Mutex // guards what follows, which the queue's turns use
	chance *rand.Rand
	times  map[string]int // how often each message was told of
	told   Counters       // DeadLettered: those with a target; Refused
	flying []*Batch       // on their way to dead-letter queues
	held   []Ref
	gone   []Deletion
}

func newCensor(t *testing.T, scan hook.Scan, seed uint64) *censor {
	t.Helper()
	needBubble(t)
	c := &censor{
		t: t, rng: rand.New(rand.NewPCG(seed, uint64(scan))), chance: rand.New(rand.NewPCG(seed, 7)), times: map[string]int{},
	}
	cfg := &Config{
		Name:    "q",
		Profile: &Profile{Kind: Quorum, DeliveryLimit: 1, Levels: int(seed % 3), Strategy: "test", Settings: func(string) (any, bool) { return nil, false }},
	}
	if seed%2 == 0 {
		cfg.Storage = &Storage{Journal: &lockedJournal{}, ID: 1}
	}
	c.q = testBroker.NewMailbox(cfg, chainOf(t, censored(scan)), c, clock.New())
	return c
}

// censored are hooks that do everything there is to a message, depending on its number, which is the first byte of its key.
func censored(scan hook.Scan) hook.Hooks {
	targets := []*hook.Target{nil, {Exchange: "once"}, {Exchange: "kept", AtLeastOnce: true}}
	number := func(m *hook.Message) int { return int(m.RoutingKey()[0]) }
	return hook.Hooks{
		Strategy: true, Scan: scan, Length: hook.LimitOf(150),
		OnEnqueue: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				switch n := number(&ms[i]); {
				case n == 0:
					vs[i].Action = hook.Refuse
				case n == 1:
					vs[i] = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonMaxLen, Nack: true}
				case n == 2:
					vs[i] = hook.Verdict{Action: hook.Route, Reason: hook.ReasonMaxLen, Target: targets[1]}
				case ms[i].Expiration.Set():
					vs[i].Deadline = now.AddMillis(ms[i].Expiration.N())
					vs[i].AskHead = n%5 == 0
				}
			}
		},
		OnHead: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				n, due := number(&ms[i]), ms[i].Deadline != 0 && now >= ms[i].Deadline
				switch {
				case due && ms[i].State == 0 && n%7 == 0 && ms[i].Why != hook.WhyLeaving:
					vs[i] = hook.Verdict{Deadline: now.AddMillis(500), State: 1}
				case due && vs[i].Action == hook.Keep:
					vs[i] = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonExpired}
				}
				if target := targets[n%3]; vs[i].Action == hook.Drop && target != nil {
					vs[i].Action, vs[i].Target = hook.Route, target
				}
			}
		},
		OnIdle: func(_ hook.Instant, idle time.Duration, v *hook.Verdict) {
			if idle >= 24*time.Hour {
				*v = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonQueueExpired, DeadLetter: true}
			}
		},
	}
}

func (c *censor) DeadLetter(_ *Config, _ hook.Instant, ds []DeadLetter, t Tracking) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer t.Expect(0, ds)
	targets := 0
	if t.kept != nil && t.kept.redrive == nil {
		targets = c.chance.IntN(3)
	}
	for i := range ds {
		ds[i].Outcome = telemetry.DeadLettered + telemetry.Outcome(c.chance.IntN(int(telemetry.Outcomes-telemetry.DeadLettered)))
		if ds[i].Outcome == telemetry.Filtered && ds[i].Admitted {
			ds[i].Outcome = telemetry.Unroutable // filters are asked once
		}
	}
	for n := range targets {
		b := NewBatch()
		b.Tracking, b.to = t, &Mailbox{broker: testBroker, order: uint64(n) + 1}
		for i := range ds {
			if ds[i].Outcome != telemetry.Filtered && !ds[i].Has(b.to) {
				b.Messages = append(b.Messages, Message{Seq: ds[i].Seq})
				ds[i].Sent++
			}
		}
		if len(b.Messages) > 0 {
			c.flying = append(c.flying, b)
		}
	}
}

func (c *censor) Removed(_ *Config, now hook.Instant, ls []telemetry.Removal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range ls {
		l := &ls[i]
		c.times[string(l.Key)]++
		if (l.Target == nil) != (l.Outcome == telemetry.Dropped) || l.Enqueued > now || l.Size != 8 {
			c.t.Errorf("told of %+v", *l)
		}
		if l.Target == nil {
			c.told.Dropped[l.Reason]++
			continue
		}
		if l.Target.AtLeastOnce && l.Outcome != telemetry.DeadLettered && l.Outcome != telemetry.Filtered {
			c.t.Errorf("an at-least-once letter is %v", l.Outcome)
		}
		c.told.DeadLettered[l.Reason]++
	}
}

func (c *censor) Refused(_ *Config, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told.Refused += uint64(n)
}

func (c *censor) Decided(*Config, hook.Instant, *telemetry.Message, *guest.Decision) {}

func (c *censor) Deleted(_ *Mailbox, d Deletion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = append(c.gone, d)
}

func (c *censor) play() {
	for range 150 {
		switch n := c.rng.IntN(100); {
		case n < 30:
			c.q.Publish(c.batch())
		case n < 50:
			c.get()
		case n < 65:
			c.q.Settle(SettleKind(c.rng.IntN(4)), c.some())
		case n < 75:
			c.answer()
		case n < 80:
			c.transact()
		case n == 80:
			c.do(func(q *Queue, now hook.Instant) { q.Purge(now) })
		case n == 81:
			time.Sleep(retryMillis * time.Millisecond)
		default:
			time.Sleep(time.Duration(c.rng.IntN(1000)) * time.Millisecond)
		}
		c.compare()
	}
	c.end()
	c.compare()
}

// batch returns messages whose keys are their numbers, by a byte that hooks look at, and then in decimal digits.
func (c *censor) batch() *Batch {
	b := NewBatch()
	for range 1 + c.rng.IntN(20) {
		c.id++
		m := message(c.id, 8)
		m.Routing = &RoutingInfo{Exchange: "x", Key: string([]byte{byte(c.rng.IntN(100))}) + strconv.FormatUint(c.id, 10)}
		m.Priority = uint8(c.rng.IntN(3))
		if c.rng.IntN(2) == 0 {
			m.Flags = Persistent
		}
		if c.rng.IntN(3) > 0 {
			setExpiration(&m, c.rng.Int64N(3000))
		}
		b.Messages = append(b.Messages, m)
	}
	return b
}

func (c *censor) do(fn func(q *Queue, now hook.Instant)) {
	c.t.Helper()
	if err := c.q.Do(fn); err != nil {
		c.t.Fatal(err)
	}
}

func (c *censor) get() {
	c.do(func(q *Queue, now hook.Instant) {
		noAck := c.rng.IntN(4) == 0
		for range c.rng.IntN(10) {
			q.Get(now, &Consumer{NoAck: noAck}, func(d Delivery, _ int) {
				if !noAck {
					c.held = append(c.held, d.Ref)
				}
			})
		}
	})
}

// some returns some of what was delivered.
func (c *censor) some() (items []PendingAck) {
	for range min(c.rng.IntN(10), len(c.held)) {
		i := c.rng.IntN(len(c.held))
		items = append(items, PendingAck{Ref: c.held[i]})
		c.held = slices.Delete(c.held, i, i+1)
	}
	return items
}

// answer says of some dead letters that they have arrived, or have not.
func (c *censor) answer() {
	c.mu.Lock()
	n := c.rng.IntN(len(c.flying) + 1)
	landed := c.flying[:n]
	c.flying = c.flying[n:]
	c.mu.Unlock()
	for _, b := range landed {
		switch c.rng.IntN(4) {
		case 0:
			b.kept.answer(b, errors.New("broken"))
			continue
		case 1:
			b.Messages[c.rng.IntN(len(b.Messages))].Flags |= Refused
		}
		b.kept.answer(b, nil)
	}
}

func (c *censor) transact() {
	kind := []SettleKind{Ack, Reject, Return}[c.rng.IntN(3)]
	if _, err := Transact([]Part{{Mailbox: c.q, Batch: c.batch(), Settlements: []Settlement{{kind, c.some()}}}}); err != nil {
		c.t.Fatal(err)
	}
}

// end ends the queue in one way or another.
func (c *censor) end() {
	switch c.rng.IntN(3) {
	case 0:
		c.do(func(q *Queue, _ hook.Instant) { _, _ = q.Delete(false, false) })
	case 1:
		c.do(func(q *Queue, _ hook.Instant) { q.End() })
	case 2:
		c.do(func(q *Queue, now hook.Instant) {
			q.lastUse -= 24 * 3600 * second
			q.lease = now
		})
		for i := 0; !c.expired(); i++ {
			if i == 1000 {
				c.t.Fatal("the queue did not expire")
			}
			c.answer() // at least once: it stays until all have arrived
			time.Sleep(retryMillis * time.Millisecond)
		}
	}
}

func (c *censor) expired() bool {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.gone) == 1
}

func (c *censor) compare() {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.q.mu.Lock() // the queue is at rest, or gone
	defer c.q.mu.Unlock()
	if c.q.queue.contents == nil {
		return
	}
	checkSums(c.t, &c.q.queue)
	counted := &c.q.queue.count
	if c.told.Dropped != counted.Dropped || c.told.DeadLettered != counted.DeadLettered || c.told.Refused != counted.Refused {
		c.t.Fatalf("told of %+v\ncounted %+v", c.told, *counted)
	}
	for id, n := range c.times {
		if n != 1 {
			c.t.Fatalf("told of message %s %d times", id[1:], n)
		}
	}
	if d := c.gone; len(d) > 0 && d[0].DeadLettered != int(counted.DeadLettered[hook.ReasonQueueExpired]) {
		c.t.Errorf("the queue dead-lettered %d, and counted %d", d[0].DeadLettered, counted.DeadLettered[hook.ReasonQueueExpired])
	}
}
