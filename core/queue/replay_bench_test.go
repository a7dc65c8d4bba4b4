package queue

import (
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// replayedLog writes what queues do with messages of 100 bytes, in entries of a connection's batch each, and of every ten messages
// settles nine, if it is to.
func replayedLog(b *testing.B, queues int, settles bool) (*memoryJournal, []*Queue) {
	b.Helper()
	const perQueue, batch = 1 << 18, 64
	j := &memoryJournal{}
	qs := make([]*Queue, queues)
	for i := range qs {
		qs[i], _ = passive(b, Config{Name: strconv.Itoa(i), Storage: &Storage{Journal: j, ID: uint64(i+1)<<8 | 1}}, ttlHooks(hook.ScanAnywhere, nil))
	}
	ms := benchMessages(batch, 100, forever)
	for i := range ms {
		ms[i].Flags = Persistent
	}
	for range perQueue / batch / queues {
		for _, q := range qs {
			q.enqueue(second, batchOf(ms...))
			for n := 0; settles && n < batch*9/10; n++ {
				var r Ref
				q.Get(second, nil2(), func(d Delivery, _ int) { r = d.Ref })
				q.settleAll(second, Ack, []PendingAck{{Ref: r}})
			}
			q.commit(nil)
		}
	}
	return j, qs
}

func BenchmarkReplay(b *testing.B) {
	for _, tc := range []struct {
		name    string
		queues  int
		settles bool
		mixed   bool // with definitions, and no queue is declared before its operations
	}{
		{"one queue", 1, false, false},
		{"a thousand queues", 1024, false, false},
		{"settled", 16, true, false},
		{"one queue, mixed", 1, false, true},
		{"a thousand queues, mixed", 1024, false, true},
		{"settled, mixed", 16, true, true},
	} {
		b.Run(tc.name, func(b *testing.B) {
			j, qs := replayedLog(b, tc.queues, tc.settles)
			bytes := 0
			for _, e := range j.entries {
				bytes += len(e.ops)
			}
			b.SetBytes(int64(bytes))
			b.ReportAllocs()
			for b.Loop() {
				replayed(b, j, qs, tc.mixed)
			}
		})
	}
}

func replayed(b *testing.B, j *memoryJournal, qs []*Queue, mixed bool) {
	b.Helper()
	r := testBroker.NewRestorer()
	if !mixed {
		for _, q := range qs {
			r.Declare(q.cfg.Storage.ID, Ordinary)
		}
	}
	var buf []byte
	for i, e := range j.entries {
		ops := e.ops
		if mixed {
			ops = append(append(buf[:0], ops...), someDefinition...)
			buf = ops
		}
		if _, err := r.Apply(e.extent, ops); err != nil {
			b.Fatal(err)
		}
		if mixed {
			r.Declare(qs[i%len(qs)].cfg.Storage.ID, Ordinary)
		}
	}
	boxes := make([]*Mailbox, len(qs))
	for i, q := range qs {
		boxes[i] = reborn(q)
	}
	r.Fill(boxes)
	b.StopTimer()
	for _, m := range boxes {
		m.queue.Abandon()
	}
	b.StartTimer()
}
