package queue

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A replay kept a list of messages that took more memory than the messages of the queue: a broker near its limit was ended at its start,
// again and again.
func TestMemoryOfAReplay(t *testing.T) {
	const n, batch = 100_000, 100
	for _, ttl := range []bool{false, true} {
		q, _, j := durable(t, Config{}, ttlHooks(hook.ScanAnywhere, nil))
		before := slab.Used()
		for i := range uint64(n / batch) {
			ms := make([]Message, batch)
			for k := range ms {
				ms[k] = message(i*batch+uint64(k), 100)
				if ms[k].Flags = Persistent; ttl {
					ms[k].Expiration = hook.LimitOf(1_000_000)
				}
			}
			q.enqueue(second, batchOf(ms...))
		}
		q.commit(nil)
		serves := slab.Used() - before
		r, m, most := testBroker.NewRestorer(), reborn(q), int64(0)
		note := func() { most = max(most, slab.Used()-before-serves) }
		var was, is runtime.MemStats
		runtime.ReadMemStats(&was)
		for _, e := range j.entries {
			if _, err := r.Apply(e.extent, e.ops); err != nil {
				t.Fatal(err)
			}
			note()
		}
		runtime.ReadMemStats(&is)
		j.used = map[uint32]int64{}
		r.Fill([]*Mailbox{m})
		note()
		if most > serves+serves/8 {
			t.Errorf("TTL %t: a replay takes %d bytes of messages that take %d", ttl, most, serves)
		}
		if heap := is.TotalAlloc - was.TotalAlloc; heap > 8*n {
			t.Errorf("TTL %t: a replay of %d messages allocates %d bytes", ttl, n, heap)
		}
		m.queue.Abandon()
		q.stopped = &StoppedError{}
		q.dropContents()
		q.Abandon()
	}
}

// levelModel is a level that is being restored as anyone would write it.
type levelModel map[uint64]uint32 // the size of a body by sequence number

// TestReplayedLevelsAgreeWithTheModel adds messages in order, some of them late, and removes most: what is there is found, in order, and
// takes about the memory of what is left.
func TestReplayedLevelsAgreeWithTheModel(t *testing.T) {
	for seed := range uint64(20 / fewer) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 13))
			before := slab.Used()
			q := &replayedQueue{}
			f, m := q.level(0), levelModel{}
			stays := 1 + rng.IntN(3000) // about one of so many
			var late []uint64
			next := rng.Uint64N(1 << 20)
			add := func(seq uint64) {
				size := rng.Uint32N(1000)
				body := make([]byte, 8)
				c, i := f.insert(seq, q.store.restore(second, recordOfBody(body), 0), size)
				c.setDeadline(i, hook.Instant(seq))
				c.setExtent(i, 1+uint32(seq%7), 0)
				m[seq] = size
			}
			for range 30_000 {
				switch rng.IntN(100) {
				case 0:
					next += rng.Uint64N(5000) // messages that are not durable
				case 1:
					f.delivered(next + rng.Uint64N(10))
				case 2:
					if len(late) > 0 {
						add(late[0])
						late = late[1:]
					}
				}
				seq := max(next, f.next)
				next = seq + 1
				if rng.IntN(200) == 0 {
					late = append(late, seq)
					f.reach(next)
					continue
				}
				add(seq)
				if gone := seq - min(seq, rng.Uint64N(300)); rng.IntN(stays) > 0 {
					if h, ok := q.locate(Ref(gone)); ok {
						q.free(h)
						delete(m, gone)
					}
				}
				if rng.IntN(500) == 0 {
					first, count := seq-min(seq, rng.Uint64N(6000)), rng.Uint64N(5000)
					q.purgeRun(Ref(first), count)
					for r := first; r < first+count; r++ {
						delete(m, r)
					}
				}
			}
			agree(t, q, m)
			queue := f.complete()
			var last uint64
			for seq, s := queue.messageFrom(0); s != nil; seq, s = queue.messageFrom(seq + 1) {
				if _, ok := m[seq]; !ok || seq < last {
					t.Fatalf("message %d is in the queue behind %d", seq, last)
				}
				last = seq
			}
			used := slab.Used() - before - int64(q.store.residentBytes)
			if most := int64(len(m))*sparseRatio*28 + 3*chunkSlots*28; used > most {
				t.Errorf("%d messages take %d bytes, want at most %d", len(m), used, most)
			}
			f.fifo = queue
			seq := queue.push(slot{}, 1) // where messages are added to
			if h, ok := q.locate(Ref(seq)); !ok || h.deadline() != 1 {
				t.Errorf("message %d is not there", seq)
			}
			f.fifo = queue
			q.release()
			if left := slab.Used() - before; left != 0 {
				t.Errorf("%d bytes are left", left)
			}
		})
	}
}

func agree(t *testing.T, q *replayedQueue, m levelModel) {
	t.Helper()
	n := 0
	for h := range q.all {
		n++
		seq := h.ref.seq()
		extent := h.chunk.extent(h.index)
		if size, ok := m[seq]; !ok || h.chunk.bodies[h.index] != size || h.deadline() != hook.Instant(seq) || extent != 1+uint32(seq%7) {
			t.Fatalf("message %d: body %d, deadline %d, extent %d; want it there: %t, %d", seq, h.chunk.bodies[h.index], h.deadline(), extent, ok, size)
		}
	}
	if n != len(m) || n != q.messages() {
		t.Fatalf("%d messages, counted as %d, want %d", n, q.messages(), len(m))
	}
}

// recordOfBody returns a record without anything else.
func recordOfBody(body []byte) []byte {
	return append([]byte{0, 0, 0, 0, 0, 0, 0}, body...)
}
