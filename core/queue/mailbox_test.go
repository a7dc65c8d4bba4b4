package queue

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/sdk/hook"
)

// graves is a host that remembers when messages died.
type graves struct {
	told
	clock clock.Clock
	mu    sync.Mutex
	died  map[uint64]hook.Instant
	gone  chan Deletion
}

func (g *graves) DeadLetter(_ *Config, now hook.Instant, ds []DeadLetter, t Tracking) {
	t.Expect(0, ds)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range ds {
		g.died[idOf(d.Body)] = now
	}
}

func (g *graves) Deleted(_ *Mailbox, d Deletion) { g.gone <- d }

// live returns a queue that takes turns.
func live(tb testing.TB, h hook.Hooks) (*Mailbox, *graves) {
	tb.Helper()
	needBubble(tb)
	clock := clock.New()
	g := &graves{clock: clock, died: map[uint64]hook.Instant{}, gone: make(chan Deletion, 1)}
	profile := &Profile{Strategy: "test", Settings: func(string) (any, bool) { return nil, false }}
	cfg := &Config{Profile: profile, Name: "q"}
	return testBroker.NewMailbox(cfg, chainOf(tb, h), g, clock), g
}

func stats(tb testing.TB, s *Mailbox) (st Stats) {
	tb.Helper()
	if err := s.Do(func(q *Queue, _ hook.Instant) { st = q.Stats() }); err != nil {
		tb.Fatal(err)
	}
	return st
}

func TestMessagesExpireOnTimeWhereverTheyStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := live(t, ttlHooks(hook.ScanAnywhere, &hook.Target{}))
		ttls := []time.Duration{time.Hour, 50 * time.Millisecond, 3 * time.Second, time.Second, 20 * time.Millisecond, 3 * time.Second}
		start := g.clock()
		for i, ttl := range ttls {
			s.Publish(batchOf(expiring(uint64(i), ttl)))
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		for i, ttl := range ttls {
			late := g.died[uint64(i)].Sub(start.Add(ttl))
			if late < 0 || late > time.Millisecond {
				t.Errorf("message %d with TTL %v died %v after its deadline", i, ttl, late)
			}
		}
	})
}

func TestAStormIsWorkedOffInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := live(t, ttlHooks(hook.ScanAnywhere, &hook.Target{}))
		const n = 20 * maxBatch
		for i := range uint64(n) {
			s.Publish(batchOf(expiring(i, time.Second)))
		}
		time.Sleep(time.Second + 5*yield)
		synctest.Wait()
		if left := stats(t, s).Ready; left == 0 || left == n {
			t.Errorf("%d of %d left in the midst of the storm: it was not worked off in turns", left, n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if left := stats(t, s).Ready; left != 0 || len(g.died) != n {
			t.Errorf("%d left, %d died; want 0 and %d", left, len(g.died), n)
		}
	})
}

func TestALeaseEndsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := live(t, lease(time.Minute))
		time.Sleep(59 * time.Second)
		_ = s.Do(func(q *Queue, now hook.Instant) { q.Touch(now) })
		time.Sleep(59 * time.Second)
		if err := s.Do(func(*Queue, hook.Instant) {}); err != nil {
			t.Fatalf("a renewed lease ended early: %v", err)
		}
		if d := <-g.gone; d.Reason != DeletedExpired || d.Idle() != time.Minute {
			t.Errorf("gone as %+v, want expired after a minute", d)
		}
		if err := s.Do(func(*Queue, hook.Instant) { t.Error("ran on a queue that is gone") }); !errors.Is(err, ErrGone) {
			t.Errorf("got %v, want %v", err, ErrGone)
		}
	})
}

// confirms counts settled batches.
type confirms struct{ n atomic.Int64 }

func (c *confirms) Confirmed(b *Batch)   { c.n.Add(int64(len(b.Messages))) }
func (c *confirms) Failed(*Batch, error) {}

func TestAQueueThatIsGoneConfirmsWhatItIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := live(t, hook.Hooks{})
		_ = s.Do(func(q *Queue, _ hook.Instant) { _, _ = q.Delete(false, false) })
		var c confirms
		b := batchOf(message(1, 0))
		b.Publisher = &c
		s.Publish(b)
		s.Settle(Ack, []PendingAck{{Ref: 1}})
		if c.n.Load() != 1 {
			t.Error("the publisher waits for ever")
		}
	})
}

// counter is a sink for many goroutines, which acknowledges on another.
type counter struct {
	n    atomic.Int64
	acks chan PendingAck
}

func (c *counter) Deliver(_ hook.Instant, cons *Consumer, ds []Delivery) int {
	for i, d := range ds {
		select {
		case c.acks <- PendingAck{Ref: d.Ref, Consumer: cons}:
		default:
			c.n.Add(int64(i))
			go cons.Wake()
			return i
		}
	}
	c.n.Add(int64(len(ds)))
	return len(ds)
}

func (c *counter) Capacity(*Consumer) (int, int)    { return 1, 1 }
func (c *counter) Takes(*Consumer, *Delivery) bool  { return true }
func (c *counter) Cancelled(*Consumer)              {}
func (c *counter) Stopped(*Consumer, *StoppedError) {}

func TestManyAtOnceLoseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := live(t, ttlHooks(hook.ScanAnywhere, nil))
		const publishers, each = 8, 3000
		cons := &counter{acks: make(chan PendingAck, 500)}
		c := &Consumer{Queue: s, Sink: cons, Prefetch: 300}
		if err := s.Do(func(q *Queue, now hook.Instant) { _ = q.AddConsumer(now, c) }); err != nil {
			t.Fatal(err)
		}
		var conf confirms
		var wg sync.WaitGroup
		for p := range publishers {
			wg.Go(func() {
				for i := range each {
					b := batchOf(message(uint64(p*each+i), 64))
					b.Publisher = &conf
					if i%3 == 0 {
						s.PublishAsync(b)
					} else {
						s.Publish(b)
					}
				}
			})
		}
		for range publishers * each {
			s.Settle(Ack, []PendingAck{<-cons.acks})
		}
		wg.Wait()
		st := stats(t, s)
		if st.Acked != publishers*each || st.Ready+st.Unacked != 0 || conf.n.Load() != publishers*each {
			t.Errorf("acked %d, left %d, confirmed %d, want %d, 0 and %d",
				st.Acked, st.Ready+st.Unacked, conf.n.Load(), publishers*each, publishers*each)
		}
	})
}

func TestAnIdleQueueHasNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// goleak in TestMain fails the package when one is left.
		s, _ := live(t, lease(time.Hour))
		s.Publish(batchOf(message(1, 0)))
		if s.queue.buf != nil || s.running {
			t.Error("an idle queue holds on to a turn's memory")
		}
	})
}
