package queue

import (
	"bytes"
	"strconv"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// spilling makes bodies beyond budget bytes lie in a file for one test.
func spilling(t *testing.T, budget int64) {
	t.Helper()
	if err := SpillTo(t.TempDir(), UsedBytes()+budget); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p := spill.Load(); p.size != 0 {
			t.Errorf("%d pages of the spill file are still in use", p.size-int64(len(p.free)))
		}
		_ = spill.Swap(nil).file.Close()
	})
}

func patterned(id uint64, size int) Publish {
	m := message(id, size)
	copy(m.Body[8:], bytes.Repeat([]byte{byte(id), byte(id >> 8), 0x5a}, size/3))
	return m
}

func TestBodiesBeyondTheBudgetComeBackFromTheFile(t *testing.T) {
	spilling(t, 4<<20)
	before := UsedBytes()
	q, h := passive(t, Config{}, ttlHooks(hook.ScanAnywhere, &hook.Target{}))
	const n = 40_000
	for i := range uint64(n) {
		m := patterned(i, 1024)
		if i%10 == 3 {
			m.Expiration = hook.LimitOf(int64(1 + (n-i)%500))
		}
		q.Enqueue(second, batchOf(m))
	}
	if held := UsedBytes() - before; held > 7<<20 {
		t.Errorf("%d KiB of messages hold %d KiB of memory", n, held>>10)
	}
	for now := second; now < 2*second; now += hook.Instant(time.Millisecond) {
		q.Tick(now)
	}
	for q.Next() != 0 && q.Next() < 3*second {
		q.Tick(3 * second)
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

func TestTheModelAgreesWhenEverythingSpills(t *testing.T) {
	for seed := range uint64(6) {
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
