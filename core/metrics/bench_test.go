package metrics

import (
	"bufio"
	"fmt"
	"io"
	"testing"
)

// BenchmarkCollect measures a complete collection in which 500 queues have series of their own.
func BenchmarkCollect(b *testing.B) {
	for _, queues := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			r := newRig(b, 500)
			v := r.vhost("v")
			for i := range queues {
				r.declare(v, fmt.Sprintf("queue-%d", i))
			}
			b.ReportAllocs()
			for b.Loop() {
				r.collect()
			}
		})
	}
}

// BenchmarkObjects measures an answer with all queues.
func BenchmarkObjects(b *testing.B) {
	const queues = 100_000
	r := newRig(b, 500)
	v := r.vhost("v")
	for i := range queues {
		r.declare(v, fmt.Sprintf("queue-%d", i))
	}
	b.ReportAllocs()
	for b.Loop() {
		r.collector.write(&text{Writer: bufio.NewWriter(io.Discard)}, &selection{everything: true})
	}
}
