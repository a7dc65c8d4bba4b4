package queue

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/slab"
)

// Bodies above 256 KiB took up to twice their size, and never left the memory: a queue of them grew beyond the budget for bodies until
// publishers were stopped. Whatever the size of bodies, queues hold little more than their bytes, and beyond the budget they hold a few
// of them, however many queues have the same ones.
func TestMemoryByBodySize(t *testing.T) {
	for _, size := range []int{1 << 10, 255 << 10, 257 << 10, 513 << 10, 1 << 20, 16 << 20} {
		for queues, flags := range map[int]Flags{1: 0, 3: Persistent} {
			t.Run(fmt.Sprintf("%d KiB, %d queues", size>>10, queues), func(t *testing.T) {
				n := max(6<<20/size, 3)
				fits := filledWith(t, size, n, queues, flags)
				if used, bytes := fits.used(), queues*n*size; used > bytes+bytes/3+queues<<20 {
					t.Errorf("%d bytes of bodies take %d bytes of memory", bytes, used)
				}
				fits.drain(t)
				const budget = 1 << 20
				spilling(t, budget)
				full := filledWith(t, size, n, queues, flags)
				most := budget + queues*(2*segmentSize+size+size/3+64<<10) // the first ones and the last one stay
				if used := full.used(); used > most {
					t.Errorf("%d bytes of bodies take %d bytes of memory beyond a budget of %d, want at most %d", queues*n*size, used, budget, most)
				}
				full.drain(t)
			})
		}
	}
}

// bodyQueues is queues that hold the same bodies of one size.
type bodyQueues struct {
	queues []*Queue
	bodies [][]byte
	before int64
}

func filledWith(t *testing.T, size, n, queues int, flags Flags) *bodyQueues {
	t.Helper()
	f := &bodyQueues{before: slab.Used()}
	for range queues {
		q, _, j := durable(t, Config{}, ttlHooks(0, nil))
		q.cfg.Storage.Journal = forgetful{j}
		f.queues = append(f.queues, q)
	}
	for i := range uint64(n) {
		m := patterned(i, size)
		m.Flags = flags
		f.bodies = append(f.bodies, m.Body)
		for _, q := range f.queues {
			q.enqueue(second, batchOf(m))
		}
	}
	return f
}

// forgetful is a journal that keeps no operations.
type forgetful struct{ *memoryJournal }

func (j forgetful) Commit(_ []byte, live []journal.Delta, c journal.Completer) {
	j.memoryJournal.Commit(nil, live, c)
}

// used returns the memory that the messages take once what is being written is in the file.
func (f *bodyQueues) used() int {
	for _, q := range f.queues {
		for q.store.releaseSpilled(); len(q.store.evicting) > 0; q.store.releaseSpilled() {
			runtime.Gosched()
		}
	}
	return int(slab.Used() - f.before)
}

// drain fails unless each way to read a message finds it as it was, and its memory is given back.
func (f *bodyQueues) drain(t *testing.T) {
	t.Helper()
	for _, q := range f.queues {
		var page pageCopy
		for i, want := range f.bodies {
			at := *q.at(ref(0, uint64(i))).slot()
			r, err := q.store.glance(at, &page)
			if err != nil || !bytes.Equal(r.body, want) || !bytes.Equal(q.store.readAlone(at).body, want) {
				t.Fatalf("message %d changed, %v", i, err)
			}
			if i%7 == 3 && !bytes.Equal(q.store.read(at).body, want) {
				t.Fatalf("message %d changed", i)
			}
		}
		for i, want := range f.bodies {
			q.Get(second, nil2(), func(d Delivery, _ int) {
				if !bytes.Equal(d.Body, want) {
					t.Fatalf("message %d changed on its way to a consumer", i)
				}
			})
			q.settleAll(second, Ack, []PendingAck{{Ref: ref(0, uint64(i))}})
		}
		checkSums(t, q)
		q.close()
		q.freeGarbage()
	}
	if left := slab.Used() - f.before; left > 0 {
		t.Errorf("%d bytes are left of queues without messages", left)
	}
}

// A small message between large ones took a whole segment.
func TestMemoryOfSmallMessagesBetweenLargeOnes(t *testing.T) {
	q, _ := passive(t, Config{}, ttlHooks(0, nil))
	before := slab.Used()
	const n = 20
	bytes := 0
	for i := range uint64(n) {
		for _, size := range []int{300 << 10, 2 << 10} {
			q.enqueue(second, batchOf(patterned(i, size)))
			bytes += size
		}
	}
	if used := int(slab.Used() - before); used > bytes+bytes/3 {
		t.Errorf("%d bytes of bodies take %d bytes of memory", bytes, used)
	}
	for i := range uint64(2 * n) {
		if id := idOf(q.store.read(*q.at(ref(0, i)).slot()).body); id != i/2 {
			t.Errorf("message %d came back as %d", i/2, id)
		}
	}
	q.close()
	q.freeGarbage()
}
