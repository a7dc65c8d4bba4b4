package queue

import (
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testBroker is the broker of the queues in these tests.
var testBroker = new(Broker)

// second is one second of simulated time.
const second = hook.Instant(time.Second)

// ttlHooks is the smallest expiry strategy: expiration counts, due messages are
// dropped, or routed when target is set.
func ttlHooks(scan hook.Scan, target *hook.Target) hook.Hooks {
	return hook.Hooks{
		Strategy: true, Scan: scan,
		OnEnqueue: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				if ms[i].Expiration.Set() {
					vs[i].Deadline = now.AddMillis(ms[i].Expiration.N())
				}
			}
		},
		OnHead: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				if ms[i].Deadline != 0 && now >= ms[i].Deadline && ms[i].Why != hook.WhyLeaving {
					vs[i] = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonExpired}
				}
				if vs[i].Action == hook.Drop && target != nil {
					vs[i].Action, vs[i].Target = hook.Route, target
				}
			}
		},
	}
}

// ttlAndExpiration are hooks that look at the queue's TTL, too.
func ttlAndExpiration(scan hook.Scan, ttl hook.Limit, restamp bool) hook.Hooks {
	h := ttlHooks(scan, &hook.Target{})
	h.OnEnqueue = func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			if t := ttl.Min(ms[i].Expiration); t.Set() {
				vs[i].Deadline = ms[i].Enqueued.AddMillis(t.N())
			}
		}
	}
	if restamp {
		h.OnRestamp = h.OnEnqueue
	}
	return h
}

// fixed is a plugin with the same hooks for every queue.
type fixed struct{ hooks hook.Hooks }

var (
	_ hook.Strategist        = fixed{}
	_ hook.ExpirationChecker = fixed{}
)

func (fixed) Arguments() []hook.Argument     { return nil }
func (fixed) Strategies() []string           { return []string{"test"} }
func (fixed) DefaultStrategy() string        { return "test" }
func (p fixed) Attach(hook.Queue) hook.Hooks { return p.hooks }

// CheckExpiration reads milliseconds.
func (fixed) CheckExpiration(raw []byte) (hook.Limit, error) {
	n, ok := hook.WholeText(raw)
	if !ok {
		return 0, errors.New("no_integer")
	}
	return hook.LimitOf(n), nil
}

func chainOf(tb testing.TB, h hook.Hooks) *chain.Chain {
	tb.Helper()
	c, err := chain.New([]chain.Named{{Name: "test", Plugin: fixed{h}}}, chain.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// needBubble ends a test that is in no synctest bubble. The timer of a queue fires there during a later test, which then finds that
// memory was given back: five seconds after the queue was emptied.
func needBubble(tb testing.TB) {
	tb.Helper()
	if _, ok := tb.(*testing.T); ok {
		synctest.Wait() // it panics elsewhere
	}
}

// ownTraffic lets nothing be under way when a test begins, and when it has ended, whatever became of it: later tests would wait for
// ever.
func ownTraffic(t *testing.T) {
	t.Helper()
	empty := func() {
		if n, waiting := testBroker.underway.bytes.Load(), len(testBroker.underway.line); n != 0 || waiting > 0 {
			t.Errorf("%d bytes are under way, %d queues wait", n, waiting)
		}
	}
	empty()
	t.Cleanup(func() {
		empty()
		testBroker.underway.bytes.Store(0)
		testBroker.underway.line = nil
		testBroker.underway.waiting.Store(false)
	})
}

// passive returns a queue whose mailbox takes no turns, for one goroutine.
func passive(tb testing.TB, cfg Config, h hook.Hooks) (*Queue, *host) {
	tb.Helper()
	if cfg.Name == "" {
		cfg.Name = "q"
	}
	if cfg.Profile == nil {
		cfg.Profile = &Profile{}
	}
	if cfg.Settings == nil {
		cfg.Settings = func(string) (any, bool) { return nil, false }
	}
	hst := &host{}
	cfg.Strategy = "test"
	m := &Mailbox{broker: testBroker, clock: func() hook.Instant { return second }, running: true}
	m.queue = Queue{essentials: essentials{cfg: &cfg, buf: new(turnBuffers)}, host: hst, mailbox: m}
	q := &m.queue
	q.attach(second, chainOf(tb, h))
	return q, hst
}

// host remembers what left a queue.
type host struct {
	told
	dead    []deadMessage
	gone    []Deletion
	outcome telemetry.Outcome // of what is dead-lettered
}

// told is what a host is told of messages.
type told struct {
	left     []leftMessage
	released []telemetry.Removal // held messages that are ready; their slices are not valid
	refused  int
	decided  []string
}

// leftMessage is what is told of a message that left.
type leftMessage struct {
	key                string
	reason             hook.Reason
	outcome            telemetry.Outcome
	enqueued, deadline hook.Instant
	size               int
	digest             uint64
	underway           time.Duration
	target, traced     bool
	entered            *telemetry.Entered
}

type deadMessage struct {
	id     uint64
	reason hook.Reason
	traced bool
}

func (h *host) DeadLetter(_ *Config, _ hook.Instant, ds []DeadLetter, t Tracking) {
	t.Expect(0, ds)
	for i, d := range ds {
		h.dead = append(h.dead, deadMessage{idOf(d.Body), d.Reason, d.Flags&Traced != 0})
		ds[i].Outcome = h.outcome
	}
}

func (h *told) Removed(_ *Config, _ hook.Instant, ls []telemetry.Removal) {
	for _, l := range ls {
		if l.Outcome == telemetry.Ready {
			h.released = append(h.released, l)
			continue
		}
		h.left = append(h.left, leftMessage{
			string(l.Key), l.Reason, l.Outcome, l.Enqueued, l.Deadline, l.Size, l.Digest, l.Underway, l.Target != nil, l.Traced, l.Entered,
		})
	}
}

func (h *told) Refused(_ *Config, n int) { h.refused += n }

func (h *told) Decided(_ *Config, _ hook.Instant, m *telemetry.Message, d *guest.Decision) {
	h.decided = append(h.decided, d.Policy+" "+string(m.Key))
}

func (h *host) Deleted(_ *Mailbox, why Deletion) { h.gone = append(h.gone, why) }

// sink takes up to room deliveries and remembers them.
type sink struct {
	room      int
	frame     int // bytes of properties that fit its frames; 0 means any number
	got       []Delivery
	ids       []uint64
	cancelled int
	stopped   int
}

func (s *sink) Deliver(_ hook.Instant, _ *Consumer, ds []Delivery) int {
	n := min(len(ds), s.room)
	if i := slices.IndexFunc(ds[:n], func(d Delivery) bool { return !s.Takes(nil, &d) }); i >= 0 {
		n = i
	}
	s.room -= n
	for _, d := range ds[:n] {
		d.Body = append([]byte(nil), d.Body...)
		s.got = append(s.got, d)
		s.ids = append(s.ids, idOf(d.Body))
	}
	return n
}

func (s *sink) Takes(_ *Consumer, d *Delivery) bool { return s.frame == 0 || len(d.Props) <= s.frame }

func (s *sink) Capacity(*Consumer) (int, int) { return s.room, 1 << 20 }

func (s *sink) Cancelled(*Consumer) { s.cancelled++ }

func (s *sink) Stopped(*Consumer, *StoppedError) { s.stopped++ }

func (s *sink) take() []uint64 {
	ids := s.ids
	s.ids, s.got = nil, nil
	return ids
}

var noProps = []byte{0, 0}

var origin = &RoutingInfo{Exchange: "x", Key: "key"}

// message returns a message whose body carries id and is padded to size.
func message(id uint64, size int) Message {
	body := make([]byte, max(size, 8))
	binary.BigEndian.PutUint64(body, id)
	return Message{Routing: origin, Props: noProps, Body: body}
}

func idOf(body []byte) uint64 { return binary.BigEndian.Uint64(body) }

func batchOf(ms ...Message) *Batch {
	b := NewBatch()
	b.Messages = append(b.Messages, ms...)
	return b
}

// setExpiration gives a message a TTL as its publisher would.
func setExpiration(m *Message, ms int64) {
	m.Expiration = hook.LimitOf(ms)
	p := amqp.Properties{Expiration: strconv.FormatInt(ms, 10)}
	p.Set(amqp.PropExpiration)
	m.Props = p.Append(nil)
}

func expiring(id uint64, ttl time.Duration) Message {
	m := message(id, 0)
	m.Expiration = hook.LimitOf(ttl.Milliseconds())
	return m
}

// checkSums fails unless every message that was published is there or left for
// a counted reason.
func checkSums(t *testing.T, q *Queue) {
	t.Helper()
	s := q.Stats()
	left := s.Refused + s.DeliveredNoAck + s.Acked + s.Purged + s.Deleted + s.Lost
	for r := range hook.Reasons {
		left += s.Dropped[r] + s.DeadLettered[r]
	}
	if want := left + uint64(s.Ready+s.Unacked+s.Held+s.Discarded); s.Published != want {
		t.Fatalf("%d published, but %d ready, %d unacked and %d left: %+v", s.Published, s.Ready, s.Unacked, left, s.Counters)
	}
	checkKinds(t, q, &s)
	if s.DeadLetters+s.Restored > s.Published {
		t.Fatalf("%d published, but %d dead letters and %d restored", s.Published, s.DeadLetters, s.Restored)
	}
}

// checkKinds counts one by one what the queue counts as messages come and go: those that are persistent, and those in memory.
func checkKinds(t *testing.T, q *Queue, s *Stats) {
	t.Helper()
	if q.contents == nil || q.stopped != nil || q.closed {
		return
	}
	persists, inMemory := 0, 0
	for l := range q.levels {
		f := &q.levels[l]
		for seq, at := f.messageFrom(0); at != nil; seq, at = f.messageFrom(seq + 1) {
			if q.cfg.Durable && at.flags&persistent != 0 {
				persists++
			}
			if q.store.at(at.segment).inMemory() {
				inMemory++
			}
		}
	}
	if s.Persistent != persists || s.InMemory != inMemory {
		t.Fatalf("%d persistent and %d in memory, want %d and %d", s.Persistent, s.InMemory, persists, inMemory)
	}
}
