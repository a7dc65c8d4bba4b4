package queue

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Whatever becomes of messages and of their queues, the space that is granted, and that is kept for their ends, is what it should be: none,
// and 64 bytes for each message that a restart would find.
func TestCampaignSpaceDoesNotDrift(t *testing.T) {
	for seed := range campaign.Size(t, "SIMULATION_SEEDS", 2, 8) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { driftAtRandom(t, seed) })
		})
	}
}

// district is queues that dead-letter to one another, on a small disk.
type district struct {
	told
	t      *testing.T
	broker *Broker
	log    *journal.Writer
	clock  clock.Clock

	mu     sync.Mutex // guards what follows
	rng    *rand.Rand
	queues []*Mailbox
	last   uint64
}

func (d *district) Deleted(*Mailbox, Deletion) {}

func (d *district) Removed(*Config, hook.Instant, []telemetry.Removal) {}

func (d *district) DeadLetter(_ *Config, _ hook.Instant, ds []DeadLetter, t Tracking) {
	d.mu.Lock()
	targets := make([]*Mailbox, 0, 3)
	for range d.rng.IntN(4) {
		if m := d.queues[d.rng.IntN(len(d.queues))]; len(targets) == 0 || m != targets[0] {
			targets = append(targets, m)
		}
	}
	if len(targets) > 2 && targets[2] == targets[1] {
		targets = targets[:2]
	}
	d.mu.Unlock()
	batches := make([]*Batch, len(targets))
	for i := range ds {
		ds[i].Outcome = telemetry.Unroutable
		for k, m := range targets {
			if ds[i].Has(m) {
				continue
			}
			if batches[k] == nil {
				batches[k] = NewBatch()
			}
			batches[k].Messages = append(batches[k].Messages, Message{
				Routing: origin, Props: append([]byte(nil), ds[i].Props...), Body: append([]byte(nil), ds[i].Body...), Seq: ds[i].Seq, Flags: ds[i].Flags,
			})
			ds[i].MayBeRefused = ds[i].MayBeRefused || m.MayRefuse()
			ds[i].Sent++
		}
		if len(targets) > 0 {
			ds[i].Outcome = telemetry.DeadLettered
		}
	}
	n := 0
	for _, b := range batches {
		if b != nil {
			n++
		}
	}
	sent := t.Expect(n, ds)
	for k, b := range batches {
		switch {
		case b == nil:
		case !sent:
			b.Discard()
		default:
			b.Tracking = t
			targets[k].PublishAsync(b)
		}
	}
}

// Refused notes nothing: it is called on the turns of several queues at a time.
func (*district) Refused(*Config, int) {}

// newQueue returns a queue, some of which refuse messages or have a limit.
func (d *district) newQueue() *Mailbox {
	d.last++
	kind := d.last
	h := hook.Hooks{
		Strategy: true, Scan: hook.ScanAnywhere,
		OnEnqueue: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				if ms[i].Expiration.Set() {
					vs[i].Deadline = now.AddMillis(ms[i].Expiration.N())
				}
				if id := idOf(ms[i].Part(hook.PartBody)); kind%3 == 0 && id%5 == 0 {
					vs[i].Action = hook.Refuse
				}
			}
		},
		OnHead: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				if ms[i].Why != hook.WhyLeaving && (ms[i].Deadline == 0 || now < ms[i].Deadline) {
					continue
				}
				id := idOf(ms[i].Part(hook.PartBody))
				vs[i] = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonExpired}
				if id%4 > 0 {
					vs[i] = hook.Verdict{Action: hook.Route, Reason: hook.ReasonExpired, Target: &hook.Target{Exchange: "x", AtLeastOnce: id%4 == 1}}
				}
			}
		},
	}
	if kind%4 == 0 {
		h.Length = hook.LimitOf(20)
	}
	profile := &Profile{VHost: "/", Strategy: "test", Settings: func(string) (any, bool) { return nil, false }}
	cfg := &Config{Profile: profile, Name: strconv.FormatUint(d.last, 10), Storage: &Storage{Journal: d.log, ID: d.last, Shard: 1}}
	return d.broker.NewMailbox(cfg, chainOf(d.t, h), d, d.clock)
}

func (d *district) reclaim(upTo uint32) {
	d.mu.Lock()
	all := append([]*Mailbox(nil), d.queues...)
	d.mu.Unlock()
	for _, m := range all {
		for more := true; more; {
			if m.Do(func(q *Queue, _ hook.Instant) { more = q.Relocate(upTo) }) != nil {
				break
			}
		}
	}
}

func (d *district) random(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

func (d *district) batch(next *uint64) *Batch {
	b := NewBatch()
	for range 1 + d.random(8) {
		*next++
		m := message(*next, d.random(2000))
		if d.random(4) > 0 {
			m.Flags = Persistent
		}
		if d.random(2) == 0 {
			m.Expiration = hook.LimitOf(int64(d.random(200)))
		}
		b.Messages = append(b.Messages, m)
	}
	return b
}

func driftAtRandom(t *testing.T, seed uint64) {
	t.Helper()
	disk := crashfs.New(seed)
	disk.SetSpace(2 << 20)
	engine, err := seg.New(disk, seg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	d := &district{t: t, broker: new(Broker), clock: clock.New(), rng: rand.New(rand.NewPCG(seed, 7))}
	unit := engine.SegmentSize() / 4
	d.log, err = journal.Open(t.Context(), engine, 1, func(uint32, wlog.Index, []byte) error { return nil }, journal.Options{
		Extent: unit, Slack: unit, Entry: int(unit), Unit: unit, Size: wlog.EntrySize, Space: d.broker.Space(), Moves: MovedBytes,
		Reclaim: func(upTo uint32) { go d.reclaim(upTo) },
	})
	if err != nil {
		t.Fatal(err)
	}
	d.log.Recovered(nil)
	for range 6 {
		d.queues = append(d.queues, d.newQueue())
	}
	next := uint64(0)
	for step := range 600 {
		i := d.random(len(d.queues))
		m := d.queues[i]
		switch d.random(12) {
		case 0, 1, 2, 3:
			go m.Publish(d.batch(&next))
		case 4, 5:
			kind := []SettleKind{Ack, Reject, Requeue}[d.random(3)]
			for range d.random(6) {
				if items := fetch(t, m); len(items) > 0 {
					m.Settle(kind, items)
				}
			}
		case 6:
			if d.random(4) == 0 {
				_ = m.Do(func(q *Queue, now hook.Instant) { q.Purge(now) })
			}
		case 7:
			if d.random(6) == 0 {
				_ = m.Do(func(q *Queue, _ hook.Instant) { _, _ = q.Delete(false, false) })
				d.mu.Lock()
				d.queues[i] = d.newQueue()
				d.mu.Unlock()
			}
		case 8:
			_ = m.Do(func(q *Queue, now hook.Instant) {
				_, _ = q.StartRedrive(now, RedriveOptions{Total: -1, Choose: func(*Stored) (*RedriveTarget, RedriveFailure) {
					return &RedriveTarget{Target: hook.Target{Exchange: "y"}}, NotChosen
				}})
			})
		case 9:
			parts := []Part{{Mailbox: m, Batch: d.batch(&next), Settlements: []Settlement{{Items: fetch(t, m)}}}}
			if other := d.queues[(i+1)%len(d.queues)]; other != m {
				parts = append(parts, Part{Mailbox: other, Batch: d.batch(&next)})
			}
			go func() { _, _ = Transact(parts) }()
		case 10:
			time.Sleep(time.Duration(d.random(100)) * time.Millisecond)
		case 11:
			synctest.Wait()
		}
		if step%100 == 99 {
			d.compare(fmt.Sprint("after step ", step))
		}
	}
	for _, m := range d.queues {
		_ = m.Do(func(q *Queue, _ hook.Instant) { _, _ = q.Delete(false, false) })
	}
	d.compare("when all queues are gone")
	if st := d.log.Stats(); st.Live != 0 {
		t.Errorf("%d bytes are live when all queues are gone", st.Live)
	}
	if err := d.log.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// compare compares what is taken of the space with what there is.
func (d *district) compare(when string) {
	d.t.Helper()
	time.Sleep(20 * time.Second)
	synctest.Wait()
	journalled := 0
	for _, m := range d.queues {
		_ = m.Do(func(q *Queue, _ hook.Instant) {
			for l := 0; q.contents != nil && l < len(q.levels); l++ {
				f := &q.levels[l]
				for seq, s := f.messageFrom(0); s != nil; seq, s = f.messageFrom(seq + 1) {
					if q.isJournalled(s) {
						journalled++
					}
				}
			}
		})
	}
	synctest.Wait()
	counter := func(name string) int64 { // loaded, because a timer of the journal may change it later
		return (*atomic.Int64)(reflect.ValueOf(d.broker.Space()).Elem().FieldByName(name).Addr().UnsafePointer()).Load()
	}
	if records, inflight := counter("records"), counter("inflight"); records != int64(journalled) || inflight != 0 || d.broker.UnderwayBytes() != 0 {
		d.t.Errorf("%s: space is kept for %d messages of %d, %d bytes are granted, %d under way", when, records, journalled, inflight, d.broker.UnderwayBytes())
	}
}
