package vhost

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

func BenchmarkRoute(b *testing.B) {
	v, _ := newVHost(b)
	exchangeOf(b, v, "fan", "fanout")
	exchangeOf(b, v, "to fan", "fanout")
	bindExchange(b, v, "to fan", "fan", "")
	for i := range 10 {
		name := "queue." + strconv.Itoa(i)
		declare(b, v, name)
		bind(b, v, "amq.direct", name, name)
		bind(b, v, "amq.topic", name, "*."+strconv.Itoa(i))
		bind(b, v, "fan", name, "")
	}
	for _, exchange := range []string{"", "amq.direct", "amq.topic", "fan", "to fan"} {
		b.Run("exchange="+exchange, func(b *testing.B) {
			b.ReportAllocs()
			var dst []*queue.Mailbox
			m := &parts.Message{Key: "queue.7"}
			for b.Loop() {
				dst, _, _ = v.Route(exchange, m, dst[:0])
			}
		})
	}
}

func BenchmarkDeclare(b *testing.B) {
	for name, pairs := range map[string][]any{"plain": nil, "lease": {"x-expires", int32(1_800_000)}} {
		b.Run(name, func(b *testing.B) {
			v, _ := newVHost(b)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				declare(b, v, "queue-"+strconv.Itoa(i), pairs...)
			}
		})
	}
}

func BenchmarkRedeclare(b *testing.B) {
	v, _ := newVHost(b)
	b.ReportAllocs()
	for b.Loop() {
		declare(b, v, "queue", "x-expires", int32(1_800_000))
	}
}

// BenchmarkIdleQueue reports the memory of an unused queue.
func BenchmarkIdleQueue(b *testing.B) {
	const n = 100_000
	for b.Loop() {
		before := heap()
		v, _ := newVHost(b)
		for i := range n {
			declare(b, v, "queue-"+strconv.Itoa(i), "x-expires", int32(1_800_000))
		}
		b.ReportMetric(float64(heap()-before)/n, "B/queue")
		for _, s := range v.Queues() {
			_, err := v.DeleteQueue(s.Config().Name, 0, false, false)
			must(b, err)
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkDeadLetter(b *testing.B) {
	for name, body := range map[string]int{"100B": 100, "1KiB": 1024} {
		b.Run(name, func(b *testing.B) {
			v, _ := newVHost(b)
			to := declare(b, v, "to")
			from := declare(b, v, "from", "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "to")
			target := &hook.Target{Exchange: "", Key: "to", HasKey: true}
			ds := make([]queue.DeadLetter, 256)
			for i := range ds {
				ds[i] = queue.DeadLetter{
					Exchange: []byte("first"), Key: []byte("key"), Props: []byte{0x10, 0, 2}, Body: make([]byte, body),
					Reason: hook.ReasonExpired, Target: target,
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += len(ds) {
				v.QueueHost().DeadLetter(from.Config(), hook.Instant(i), ds, queue.Tracking{})
				b.StopTimer()
				must(b, to.Do(func(q *queue.Queue, now hook.Instant) { q.Purge(now) }))
				b.StartTimer()
			}
		})
	}
}
