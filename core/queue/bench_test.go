package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// nowhere is a sink that always has room.
type nowhere struct{ n int }

func (s *nowhere) Deliver(_ hook.Instant, _ *Consumer, ds []Delivery) int {
	s.n += len(ds)
	return len(ds)
}
func (s *nowhere) Capacity(*Consumer) (int, int)    { return maxBatch, 1 << 20 }
func (s *nowhere) Takes(*Consumer, *Delivery) bool  { return true }
func (s *nowhere) Cancelled(*Consumer)              {}
func (s *nowhere) Stopped(*Consumer, *StoppedError) {}

// recording is a host that tells a recorder, if there is one, and remembers nothing.
type recording struct{ *telemetry.Recorder }

func (recording) DeadLetter(*Config, hook.Instant, []DeadLetter, Tracking)           {}
func (recording) Refused(*Config, int)                                               {}
func (recording) Decided(*Config, hook.Instant, *telemetry.Message, *guest.Decision) {}
func (recording) Deleted(*Mailbox, Deletion)                                         {}

func (r recording) Removed(from *Config, now hook.Instant, ls []telemetry.Removal) {
	r.Recorder.Removed(&telemetry.QueueRef{VHost: from.VHost, Queue: from.Name, Strategy: from.Strategy}, now, ls)
}

// benchMessages returns messages to make batches of, with [batchOf]: a queue empties those that it gets.
func benchMessages(n, size int, ttl func(i int) hook.Limit) (ms []Message) {
	for i := range n {
		m := message(uint64(i), size)
		m.Expiration = ttl(i)
		ms = append(ms, m)
	}
	return ms
}

func forever(int) hook.Limit { return 0 }

func benchQueue(b *testing.B, h hook.Hooks) *Queue {
	b.Helper()
	q, _ := passive(b, Config{}, h)
	q.host = recording{}
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
			ms := benchMessages(256, 100, forever)
			items := make([]PendingAck, 256)
			next := uint64(0)
			for b.Loop() {
				q.enqueue(second, batchOf(ms...))
				if noAck {
					continue
				}
				for i := range items {
					items[i] = PendingAck{Ref: Ref(next), Consumer: c}
					next++
				}
				q.settleAll(second, Ack, items)
			}
			report(b, 256)
		})
	}
}

func BenchmarkExpire(b *testing.B) {
	for _, tc := range []struct {
		name     string
		ttl      func(i int) hook.Limit
		recorder *telemetry.Recorder
	}{
		{"same", func(int) hook.Limit { return hook.LimitOf(1000) }, nil},
		{"random", func(i int) hook.Limit { return hook.LimitOf(int64(i * 7919 % 10007)) }, nil},
		{"random, told", func(i int) hook.Limit { return hook.LimitOf(int64(i * 7919 % 10007)) }, telemetry.New(telemetry.Options{Events: 4096})},
	} {
		b.Run(tc.name, func(b *testing.B) {
			q := benchQueue(b, ttlHooks(hook.ScanAnywhere, nil))
			q.host = recording{tc.recorder}
			ms := benchMessages(256, 100, tc.ttl)
			now := second
			const backlog = 400
			for b.Loop() {
				for range backlog {
					now += hook.Instant(time.Millisecond)
					q.enqueue(now, batchOf(ms...))
				}
				for now += 20 * second; q.ready > 0; {
					q.tick(now)
				}
			}
			report(b, 256*backlog)
		})
	}
}

func BenchmarkBacklog(b *testing.B) {
	q := benchQueue(b, ttlHooks(hook.ScanAnywhere, nil))
	ms := benchMessages(256, 100, forever)
	for b.Loop() {
		for range 1000 {
			q.enqueue(second, batchOf(ms...))
		}
		b.ReportMetric(float64(q.store.residentBytes)/256000, "store-B/msg")
		c := &Consumer{NoAck: true, Sink: &nowhere{}}
		_ = q.AddConsumer(second, c)
		q.consumers.remove(c)
	}
	report(b, 256*1000)
}
