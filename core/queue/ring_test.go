package queue

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// slowJournal takes its time.
type slowJournal struct{}

var _ Journal = slowJournal{}

func (slowJournal) Commit(_ []byte, _ []journal.Delta, c journal.Completer) {
	if c != nil {
		time.AfterFunc(50*time.Millisecond, func() { c.Durable() })
	}
}

func (slowJournal) Relocate([]byte, []journal.Delta) {}
func (slowJournal) TryCommit([]byte) bool            { return true }
func (slowJournal) Extent() uint32                   { return 1 }
func (slowJournal) Err() error                       { return nil }

// ring is queues each of which dead-letters to the next; a message goes round so many times.
type ring struct {
	mu        sync.Mutex
	mailboxes []*Mailbox
	of        map[*Config]int
	ended     int
}

func (r *ring) DeadLetter(from *Config, _ hook.Instant, ds []DeadLetter, t Tracking) {
	r.mu.Lock()
	next := r.mailboxes[(r.of[from]+1)%len(r.mailboxes)]
	r.mu.Unlock()
	b := NewBatch()
	for i := range ds {
		body := append([]byte(nil), ds[i].Body...)
		if body[8]++; body[8] > 6 {
			r.mu.Lock()
			r.ended++
			r.mu.Unlock()
			continue
		}
		b.Messages = append(b.Messages, Message{Routing: origin, Props: noProps, Body: body, Seq: ds[i].Seq, Flags: ds[i].Flags, Expiration: hook.LimitOf(1000)})
		ds[i].Sent = 1
	}
	if len(b.Messages) > 0 {
		b.Tracking = t
	}
	t.Expect(min(1, len(b.Messages)), ds)
	if len(b.Messages) == 0 {
		b.release()
		return
	}
	next.PublishAsync(b)
}

func (r *ring) Removed(*Config, hook.Instant, []telemetry.Removal)                 {}
func (r *ring) Refused(*Config, int)                                               {}
func (r *ring) Decided(*Config, hook.Instant, *telemetry.Message, *guest.Decision) {}
func (r *ring) Deleted(*Mailbox, Deletion)                                         {}

// Queues that dead-letter to one another in a circle, more than may be under way, neither stop one another nor lose any.
func TestARingOfQueuesComesToAnEnd(t *testing.T) {
	for name, durable := range map[string]bool{"in memory": false, "durable": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { comesToAnEnd(t, durable) }) })
	}
}

func comesToAnEnd(t *testing.T, durable bool) {
	t.Helper()
	ownTraffic(t)
	const queues, each, size = 3, 100, 100_000
	r := &ring{of: map[*Config]int{}}
	for i := range queues {
		s, _ := live(t, ttlHooks(hook.ScanAnywhere, &hook.Target{}))
		cfg := *s.Config()
		if durable {
			cfg.Storage = &Storage{Journal: slowJournal{}, ID: uint64(i), Shard: 1}
		}
		s.config.Store(&cfg)
		_ = s.Do(func(q *Queue, _ hook.Instant) { q.cfg, q.host = &cfg, r })
		r.mailboxes = append(r.mailboxes, s)
		r.of[&cfg] = i
	}
	for _, s := range r.mailboxes {
		for range each {
			m := expiring(1, time.Second)
			m.Body, m.Flags = append(m.Body, make([]byte, size)...), Persistent
			s.Publish(batchOf(m))
		}
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	for i, s := range r.mailboxes {
		if st := stats(t, s); st.Ready+st.Unacked+st.Discarded > 0 {
			t.Errorf("queue %d: %+v", i, st)
		}
	}
	if n := testBroker.underway.bytes.Load(); n != 0 || r.ended != queues*each {
		t.Errorf("%d bytes are under way, %d of %d have gone round", n, r.ended, queues*each)
	}
}
