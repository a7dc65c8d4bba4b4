package route

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

func benchmark(b *testing.B, table *Table[*int], key string, headers func() amqp.RawTable) {
	b.Helper()
	b.ReportAllocs()
	var dst []*int
	k := []byte(key)
	for b.Loop() {
		dst, _ = table.Match(dst[:0], k, headers)
	}
	b.ReportMetric(float64(len(dst)), "destinations")
}

func BenchmarkDirect(b *testing.B) {
	table := New[*int](Direct)
	for i := range 100_000 {
		table.Add(fmt.Sprintf("queue-%d", i), nil, new(int))
	}
	benchmark(b, table, "queue-4711", nil)
}

func BenchmarkFanout(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			table := New[*int](Fanout)
			for range n {
				table.Add("", nil, new(int))
			}
			benchmark(b, table, "anything", nil)
		})
	}
}

func BenchmarkTopic(b *testing.B) {
	table := New[*int](Topic)
	for i := range 100_000 {
		table.Add(fmt.Sprintf("sensor.%d.temperature", i), nil, new(int))
	}
	for i := range 20 {
		table.Add(fmt.Sprintf("sensor.*.kind%d.#", i), nil, new(int))
	}
	d := new(int)
	table.Add("sensor.*.temperature", nil, d)
	table.Add("#", nil, d)
	table.Add("#.temperature", nil, d)
	b.Run("words", func(b *testing.B) { benchmark(b, table, "sensor.4711.temperature", nil) })
	b.Run("long", func(b *testing.B) { benchmark(b, table, "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p", nil) })
}

func BenchmarkHeaders(b *testing.B) {
	table := New[*int](Headers)
	for i := range 10_000 {
		table.Add("", amqp.Table{{Key: "format", Value: "pdf"}, {Key: "customer", Value: int32(i)}}, new(int))
	}
	table.Add("", amqp.Table{{Key: "x-match", Value: "any"}, {Key: "format", Value: "pdf"}, {Key: "urgent", Value: true}}, new(int))
	headers := rawOf(amqp.Table{{Key: "format", Value: "pdf"}, {Key: "type", Value: "report"}, {Key: "customer", Value: int64(4711)}})
	benchmark(b, table, "", headers)
}

// Removing a queue's bindings does not touch those of other queues.
func BenchmarkRemoveDestination(b *testing.B) {
	table := New[int](Topic)
	for i := range 100_000 {
		table.Add("shared.#", nil, i)
	}
	for b.Loop() {
		table.RemoveDestination(50_000)
		table.Add("shared.#", nil, 50_000)
	}
}
