package queue

import (
	"bytes"
	"strconv"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/core/queue/spill"
	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/sdk/hook"
)

// spilling spills bodies beyond budget bytes in one test.
func spilling(t *testing.T, budget int64) {
	t.Helper()
	if err := testBroker.SpillTo(t.TempDir(), slab.Used()+budget, nil, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p := testBroker.spill
		testBroker.spill = nil
		_ = p.Close() // which waits for the holes that are made
		if n := p.InUse(); n != 0 {
			t.Errorf("%d pages of the spill file are still in use", n)
		}
	})
}

func patterned(id uint64, size int) Message {
	m := message(id, size)
	copy(m.Body[8:], bytes.Repeat([]byte{byte(id), byte(id >> 8), 0x5a}, size/3))
	return m
}

// A purge replaces the contents of a queue: what enters after it was kept in memory whatever the budget.
func TestBodiesBeyondTheBudgetGoToTheFileAfterAPurge(t *testing.T) {
	spilling(t, 1<<20)
	q, _ := passive(t, Config{}, hook.Hooks{})
	q.enqueue(second, batchOf(patterned(0, 1024)))
	q.Purge(second)
	before := slab.Used()
	for i := range uint64(8000) {
		q.enqueue(second, batchOf(patterned(i, 1024)))
	}
	if held := slab.Used() - before; held > 4<<20 {
		t.Errorf("after a purge, 8,000 messages of 1 KiB hold %d KiB of memory, of 1 MiB", held>>10)
	}
	q.Delete(false, false)
	q.tick(10 * second)
}

func TestBodiesBeyondTheBudgetComeBackFromTheFile(t *testing.T) {
	spilling(t, 4<<20)
	before := slab.Used()
	q, h := passive(t, Config{}, ttlHooks(hook.ScanAnywhere, &hook.Target{}))
	const n = 40_000
	for i := range uint64(n) {
		m := patterned(i, 1024)
		if i%10 == 3 {
			m.Expiration = hook.LimitOf(int64(1 + (n-i)%500))
		}
		q.enqueue(second, batchOf(m))
	}
	if held := slab.Used() - before; held > 7<<20 {
		t.Errorf("%d KiB of messages hold %d KiB of memory", n, held>>10)
	}
	for now := second; now < 2*second; now += hook.Instant(time.Millisecond) {
		q.tick(now)
	}
	for q.next() != 0 && q.next() < 3*second {
		q.tick(3 * second)
	}
	if len(h.dead) != n/10 {
		t.Errorf("%d messages died, want %d", len(h.dead), n/10)
	}
	drainPatterned(t, q, n)
	checkSums(t, q)
	q.close()
}

func drainPatterned(t *testing.T, q *Queue, n uint64) {
	t.Helper()
	for i := range n {
		if i%10 == 3 {
			continue
		}
		ok := q.Get(3*second, &Consumer{NoAck: true}, func(d Delivery, _ int) {
			if !bytes.Equal(d.Body, patterned(i, 1024).Body) {
				t.Fatalf("message %d came back as message %d, or changed", i, idOf(d.Body))
			}
		})
		if !ok {
			t.Fatalf("message %d is missing", i)
		}
	}
}

func TestCampaignTheModelAgreesWhenEverythingSpills(t *testing.T) {
	for seed := range campaign.Size(t, "SIMULATION_SEEDS", 0, 3) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			spilling(t, 0)
			p := newPair(t, hook.ScanAnywhere, int(seed%2)*3, seed)
			for range 3 {
				p.flood()
				p.compare()
			}
			p.play(300)
			p.q.close()
		})
	}
}

// Bodies beyond the budget took what a log keeps of a full disk for settling and
// moving, and what trimming gave back.
func TestBodiesTakeNothingOfADiskThatIsAlmostFull(t *testing.T) {
	spilling(t, 1<<20)
	full := true
	testBroker.spill.hasSpace = func() bool { return !full }
	q, _ := passive(t, Config{}, ttlHooks(hook.ScanAnywhere, nil))
	const n = 20_000
	fill := func(from, to uint64) {
		for i := from; i < to; i++ {
			q.enqueue(second, batchOf(patterned(i, 1024)))
		}
	}
	before := slab.Used()
	fill(0, n/2)
	if filed, held := q.store.spilled, slab.Used()-before; filed != 0 || held < n/2<<10 {
		t.Errorf("%d bytes are in the file and %d in memory, want all in memory", filed, held)
	}
	full = false
	fill(n/2, n)
	if q.store.spilled == 0 {
		t.Error("nothing is in the file though there is room again")
	}
	filed := q.store.spilled
	full = true
	fill(n, n+n/4)
	const underway = 3 * spill.PageSize // which the file was asked for before
	if q.store.spilled > filed+underway {
		t.Errorf("the file has grown from %d to %d bytes on a full disk", filed, q.store.spilled)
	}
	for i := range uint64(n + n/4) {
		q.Get(second, &Consumer{NoAck: true}, func(d Delivery, _ int) {
			if !bytes.Equal(d.Body, patterned(i, 1024).Body) {
				t.Fatalf("message %d came back as message %d, or changed", i, idOf(d.Body))
			}
		})
	}
	q.close()
}

// slowSink takes as many deliveries as the test allows, and measures the memory in use
// meanwhile.
type slowSink struct {
	*sink
	used int64
}

func (s *slowSink) Deliver(now hook.Instant, c *Consumer, ds []Delivery) int {
	s.used = max(s.used, slab.Used())
	return s.sink.Deliver(now, c, ds)
}

// For each message of 100 KB that a connection took, the segments of 256 messages were
// loaded, and released again: a backlog was delivered at 15 messages a second.
func TestMessagesThatASlowConnectionDoesNotTakeAreNotLoaded(t *testing.T) {
	spilling(t, 1<<20)
	q, _ := passive(t, Config{}, ttlHooks(hook.ScanAnywhere, nil))
	const n, size = 200, 100_000
	for i := range uint64(n) {
		q.enqueue(second, batchOf(patterned(i, size)))
	}
	before := slab.Used()
	s := &slowSink{sink: &sink{room: 1}}
	c := &Consumer{NoAck: true, Sink: s}
	if err := q.AddConsumer(second, c); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if len(s.got) != i+1 || !bytes.Equal(s.got[i].Body, patterned(uint64(i), size).Body) {
			t.Fatalf("%d messages were delivered unchanged, want %d", len(s.got), i+1)
		}
		s.room = 1
		q.consumers.wake(q, second, c)
	}
	if loaded := s.used - before; loaded > 6*segmentSize {
		t.Errorf("%d KiB were loaded to deliver one message", loaded>>10)
	}
	q.close()
}

// A few messages that stay do not retain the memory, or the disk space, of all that were
// queued beside them.
func TestSurvivorsAreMovedTogether(t *testing.T) {
	for _, tc := range []struct {
		name   string
		budget int64
	}{{"in memory", 1 << 40}, {"in the file", 1 << 20}} {
		t.Run(tc.name, func(t *testing.T) {
			spilling(t, tc.budget)
			q, _ := passive(t, Config{}, ttlHooks(hook.ScanAnywhere, nil))
			const n, every = 60_000, 200
			for i := range uint64(n) {
				q.enqueue(second, batchOf(patterned(i, 1024)))
			}
			c := &Consumer{}
			var settled []PendingAck
			for range n {
				q.Get(second, c, func(d Delivery, _ int) {
					if idOf(d.Body)%every != 0 {
						settled = append(settled, PendingAck{Ref: d.Ref, Consumer: c})
					}
				})
			}
			q.settleAll(second, Ack, settled)
			for turns := 0; q.next() != 0; turns++ {
				if turns > 100 {
					t.Fatal("it is moved without end")
				}
				q.tick(q.next())
			}
			if s := &q.store; s.residentBytes+s.spilled > sparseFloor+4*s.live {
				t.Errorf("%d bytes of messages take %d of memory and %d of the file", s.live, s.residentBytes, s.spilled)
			}
			for i := range uint64(n / every) {
				q.settleAll(second, Requeue, []PendingAck{{Ref: Ref(i * every), Consumer: c}})
				q.Get(second, c, func(d Delivery, _ int) {
					if !bytes.Equal(d.Body, patterned(i*every, 1024).Body) {
						t.Fatalf("message %d came back as message %d, or changed", i*every, idOf(d.Body))
					}
				})
			}
			q.close()
			q.freeGarbage()
		})
	}
}
