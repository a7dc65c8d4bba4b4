package queue

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// farewell has a queue end after a second without use, when its messages have gone to a target.
func farewell(target *hook.Target) hook.Hooks {
	return hook.Hooks{
		OnHead: func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
			for i := range vs {
				if vs[i].Action == hook.Drop {
					vs[i].Action, vs[i].Target = hook.Route, target
				}
			}
		},
		OnIdle: func(now hook.Instant, idle time.Duration, v *hook.Verdict) {
			if idle < time.Second {
				v.Deadline = now.Add(time.Second - idle)
				return
			}
			v.Action, v.Reason, v.DeadLetter = hook.Drop, hook.ReasonQueueExpired, true
		},
	}
}

// A queue whose time was up dead-lettered all it held in one turn: nobody else had theirs meanwhile.
func TestAQueueEndsInManyTurns(t *testing.T) {
	q, h := passive(t, Config{}, farewell(&hook.Target{}))
	const n = 10_000
	publish(q, second, make([]uint64, n)...)
	turns := 0
	for ; len(h.gone) == 0; turns++ {
		before := len(h.dead)
		q.tick(2 * second)
		if did := len(h.dead) - before; did > maxBatch {
			t.Fatalf("%d messages in one turn", did)
		}
		if len(h.gone) == 0 && q.next() != atOnce {
			t.Fatalf("after %d turns the next is at %v", turns, q.next())
		}
	}
	d := h.gone[0]
	if len(h.dead) != n || d.DeadLettered != n || d.Messages != 0 || d.Lease != 2*second {
		t.Errorf("%d dead letters, gone as %+v", len(h.dead), d)
	}
	checkSums(t, q)
}

// Whoever uses a queue that is about to end keeps it, and what it holds still.
func TestAQueueThatIsUsedDoesNotEnd(t *testing.T) {
	for name, use := range map[string]func(q *Queue){
		"declared": func(q *Queue) { q.Touch(2 * second) },
		"fetched":  func(q *Queue) { q.Get(2*second, &Consumer{NoAck: true}, func(Delivery, int) {}) },
		"consumed": func(q *Queue) { consume(t, q, Consumer{Prefetch: 1}, 1) },
	} {
		q, h := passive(t, Config{}, farewell(&hook.Target{}))
		publish(q, second, make([]uint64, 1000)...)
		q.tick(2 * second)
		use(q)
		left := q.ready
		q.tick(2 * second)
		if len(h.gone) > 0 || left < 1000-maxBatch-1 || q.ready != left {
			t.Errorf("%s: gone %v, %d left, later %d", name, h.gone, left, q.ready)
		}
		if q.consumers.count() == 0 && q.lease != 3*second {
			t.Errorf("%s: its lease ends at %v", name, q.lease)
		}
		checkSums(t, q)
	}
}

// A queue that was to dead-letter what it held, and had nowhere to, said that it dropped nothing.
func TestWhatIsDroppedWhileAQueueEndsIsTold(t *testing.T) {
	hooks := farewell(nil)
	hooks.OnHead = nil
	q, h := passive(t, Config{}, hooks)
	publish(q, second, make([]uint64, 1000)...)
	for now := 2 * second; now < 3*second && len(h.gone) == 0; now += hook.Instant(time.Millisecond) {
		q.tick(now)
	}
	if len(h.gone) != 1 || h.gone[0].Messages != 1000 || h.gone[0].DeadLettered != 0 {
		t.Errorf("told %+v", h.gone)
	}
}

// Messages that were to arrive at least once went with their queue when that expired.
func TestAQueueStaysUntilWhatItSentHasArrived(t *testing.T) { synctest.Test(t, staysUntilArrived) }

func staysUntilArrived(t *testing.T) {
	t.Helper()
	r := &leaver{relay: relay{targets: 1}}
	s, _ := live(t, farewell(&hook.Target{AtLeastOnce: true}))
	s.queue.host = r
	s.Publish(batchOf(message(1, 0), message(2, 0)))
	time.Sleep(2 * time.Second)
	synctest.Wait()
	if st := stats(t, s); st.Discarded != 2 || len(r.gone) > 0 {
		t.Fatalf("%d on their way, gone %v", st.Discarded, r.gone)
	}
	settle(r.sent[0], true) // the first of them was refused
	time.Sleep(2 * retryMillis * time.Millisecond)
	synctest.Wait()
	if len(r.gone) > 0 {
		t.Fatal("gone before all has arrived")
	}
	settle(r.sent[0], false)
	if len(r.gone) != 1 || r.gone[0].DeadLettered != 2 || r.gone[0].Messages != 0 {
		t.Errorf("gone %+v", r.gone)
	}
}

type leaver struct {
	relay
	gone []Deletion
}

func (l *leaver) Deleted(_ *Mailbox, d Deletion) { l.gone = append(l.gone, d) }

// graveyard is a host whose dead letters are under way until the test lets them land.
type graveyard struct {
	mu     sync.Mutex
	flying []*Batch
	dead   int
	ids    []uint64 // of them
}

func (g *graveyard) DeadLetter(_ *Config, _ hook.Instant, ds []DeadLetter, t Tracking) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := NewBatch()
	for i := range ds {
		b.Messages = append(b.Messages, Message{Seq: ds[i].Seq, Body: append([]byte(nil), ds[i].Body...)})
		ds[i].Sent = 1
		g.ids = append(g.ids, idOf(ds[i].Body))
	}
	b.Tracking = t
	t.Expect(1, ds)
	testBroker.underway.add(b)
	g.flying = append(g.flying, b)
	g.dead += len(ds)
}

func (g *graveyard) land() {
	g.mu.Lock()
	all := g.flying
	g.flying = nil
	g.mu.Unlock()
	for _, b := range all {
		b.complete(nil)
	}
	time.Sleep(time.Second)
	synctest.Wait()
}

func (g *graveyard) Removed(*Config, hook.Instant, []telemetry.Removal)                 {}
func (g *graveyard) Refused(*Config, int)                                               {}
func (g *graveyard) Decided(*Config, hook.Instant, *telemetry.Message, *guest.Decision) {}
func (g *graveyard) Deleted(*Mailbox, Deletion)                                         {}

// However many queues have dead letters, only so many bytes are under way; all of them have their turn, whoever goes
// meanwhile; and none of it keeps consumers from what is behind.
func TestDeadLettersWaitForRoom(t *testing.T) {
	for name, target := range map[string]*hook.Target{"at most once": {}, "at least once": {AtLeastOnce: true}} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { waitForRoom(t, target) }) })
	}
}

func waitForRoom(t *testing.T, target *hook.Target) {
	t.Helper()
	ownTraffic(t)
	const queues, each, size = 20, 40, 100_000
	g := &graveyard{}
	all := make([]*Mailbox, queues)
	for i := range all {
		all[i], _ = live(t, ttlHooks(hook.ScanAnywhere, target))
		all[i].queue.host = g
		for range each {
			m := message(1, size)
			m.Expiration = hook.LimitOf(1000)
			all[i].Publish(batchOf(m))
		}
		all[i].Publish(batchOf(message(2, 0)))
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if n := testBroker.underway.bytes.Load(); n < trafficLimit || n > trafficLimit+queues*(departBytes+size) {
		t.Fatalf("%d bytes are under way", n)
	}
	waiting := 0 // of those that had their turns last, which may be any
	for _, s := range all {
		waiting += stats(t, s).Discarded
	}
	if waiting == 0 {
		t.Fatal("no queue waits")
	}
	for i, s := range all {
		got := uint64(0)
		must := s.Do(func(q *Queue, now hook.Instant) {
			q.Get(now, &Consumer{NoAck: true}, func(d Delivery, _ int) { got = idOf(d.Body) })
			checkSums(t, q)
		})
		if must != nil || got != 2 {
			t.Fatalf("queue %d: got message %d, %v", i, got, must)
		}
	}
	gone, arrived := 0, 0
	for i := range all[:queues/2] { // some go, or are stopped, while they are in the line
		_ = all[i].Do(func(q *Queue, _ hook.Instant) {
			gone += q.ready + q.waiting()
			arrived += int(q.count.DeadLettered[hook.ReasonExpired])
			if i%2 == 0 {
				_, _ = q.Delete(false, false)
				return
			}
			q.stop(ErrGone)
		})
	}
	for range 100 {
		g.land()
		if n := testBroker.underway.bytes.Load(); n > trafficLimit+queues*(departBytes+size) {
			t.Fatalf("%d bytes are under way", n)
		}
	}
	for _, s := range all[queues/2:] {
		arrived += int(stats(t, s).DeadLettered[hook.ReasonExpired])
	}
	if arrived+gone != queues*each || testBroker.underway.bytes.Load() != 0 || len(testBroker.underway.line) > 0 {
		t.Errorf("%d dead-lettered and %d gone of %d; %d bytes under way, %d wait", arrived, gone, queues*each, testBroker.underway.bytes.Load(), len(testBroker.underway.line))
	}
	for _, s := range all[queues/2:] {
		if st := stats(t, s); st.Ready+st.Discarded > 0 || st.DeadLettered[hook.ReasonExpired] != each {
			t.Errorf("%+v", st)
		}
	}
}

// A queue that entered the line just when the last dead letters landed was not seen by whoever landed them, and waited for
// ever.
func TestNobodyWaitsWhileNothingIsUnderWay(t *testing.T) {
	for range 300_000 / fewer {
		var line traffic
		line.bytes.Store(trafficLimit)
		s := &Mailbox{broker: testBroker, running: true} // its work only waits
		var both sync.WaitGroup
		both.Go(func() { line.remove(trafficLimit) })
		admitted := line.admit(s)
		both.Wait()
		if !admitted && len(line.line) > 0 {
			t.Fatal("a queue is in the line, and nothing is under way")
		}
	}
}

// Messages that had been given up went with their queue when it was deleted before there was room for them.
func TestWhatWaitsToDepartDoesNotGoWithItsQueue(t *testing.T) {
	for name, end := range map[string]func(q *Queue, now hook.Instant, c *Consumer){
		"deleted":      func(q *Queue, _ hook.Instant, _ *Consumer) { _, _ = q.Delete(false, false) },
		"auto-deleted": func(q *Queue, now hook.Instant, c *Consumer) { q.RemoveConsumers(now, nil, c) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ownTraffic(t)
				const n, size = 40, 1 << 20
				s, _ := live(t, ttlHooks(hook.ScanAnywhere, &hook.Target{}))
				g := &graveyard{}
				cfg := *s.Config()
				cfg.AutoDelete = true
				c := &Consumer{Sink: &sink{}}
				_ = s.Do(func(q *Queue, now hook.Instant) {
					q.host, q.cfg = g, &cfg
					_ = q.AddConsumer(now, c)
					var held []PendingAck
					for id := range uint64(n) {
						q.enqueue(now, batchOf(message(id, size)))
						q.Get(now, &Consumer{}, func(d Delivery, _ int) { held = append(held, PendingAck{Ref: d.Ref}) })
					}
					q.settleAll(now, Reject, held)
					if len(q.departing.list) == 0 {
						t.Error("none waits")
					}
					end(q, now, c)
					checkSums(t, q)
				})
				g.land()
				if g.dead != n || testBroker.underway.bytes.Load() != 0 {
					t.Errorf("%d of %d have left, %d bytes are under way", g.dead, n, testBroker.underway.bytes.Load())
				}
			})
		})
	}
}
