package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// nowhere is a sink that always has room.
type nowhere struct{ n int }

func (s *nowhere) Deliver(_ *Consumer, ds []Delivery) int { s.n += len(ds); return len(ds) }
func (s *nowhere) Cancelled(*Consumer)                    {}
func (s *nowhere) Stopped(*Consumer, *StoppedError)       {}

func benchBatch(n, size int, ttl func(i int) hook.Limit) *Batch {
	b := &Batch{}
	for i := range n {
		m := message(uint64(i), size)
		m.Expiration = ttl(i)
		b.Messages = append(b.Messages, m)
	}
	return b
}

func forever(int) hook.Limit { return 0 }

func benchQueue(b *testing.B, h hook.Hooks) *Queue {
	b.Helper()
	q, _ := passive(b, Config{}, h)
	b.ReportAllocs()
	return q
}

func report(b *testing.B, n int) {
	b.Helper()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/msg")
}

func BenchmarkHandOver(b *testing.B) {
	for _, noAck := range []bool{true, false} {
		b.Run(fmt.Sprintf("noAck=%v", noAck), func(b *testing.B) {
			q := benchQueue(b, ttlHooks(hook.ScanAnywhere, nil))
			c := &Consumer{NoAck: noAck, Sink: &nowhere{}}
			_ = q.AddConsumer(second, c)
			batch := benchBatch(256, 100, forever)
			items := make([]Settled, 256)
			next := uint64(0)
			for b.Loop() {
				q.Enqueue(second, batch)
				if noAck {
					continue
				}
				for i := range items {
					items[i] = Settled{Ref: Ref(next), Consumer: c}
					next++
				}
				q.Settle(second, Ack, items)
			}
			report(b, 256)
		})
	}
}

func BenchmarkExpire(b *testing.B) {
	for _, tc := range []struct {
		name string
		ttl  func(i int) hook.Limit
	}{
		{"same", func(int) hook.Limit { return hook.LimitOf(1000) }},
		{"random", func(i int) hook.Limit { return hook.LimitOf(int64(i * 7919 % 10007)) }},
	} {
		b.Run(tc.name, func(b *testing.B) {
			q := benchQueue(b, ttlHooks(hook.ScanAnywhere, nil))
			batch := benchBatch(256, 100, tc.ttl)
			now := second
			const backlog = 400
			for b.Loop() {
				for range backlog {
					now += hook.Instant(time.Millisecond)
					q.Enqueue(now, batch)
				}
				for now += 20 * second; q.ready > 0; {
					q.Tick(now)
				}
			}
			report(b, 256*backlog)
		})
	}
}

func BenchmarkBacklog(b *testing.B) {
	q := benchQueue(b, ttlHooks(hook.ScanAnywhere, nil))
	batch := benchBatch(256, 100, forever)
	for b.Loop() {
		for range 1000 {
			q.Enqueue(second, batch)
		}
		b.ReportMetric(float64(q.store.held)/256000, "store-B/msg")
		c := &Consumer{NoAck: true, Sink: &nowhere{}}
		_ = q.AddConsumer(second, c)
		q.consumers.remove(c)
	}
	report(b, 256*1000)
}
