package telemetry

import (
	"fmt"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// shares are the percentages of messages that benchmarks trace; negative means that traces are off.
var shares = []int{-1, 0, 1, 100}

func benchSpans(b *testing.B, share int) *Spans {
	b.Helper()
	if share < 0 {
		return nil
	}
	return NewSpans(SpanOptions{
		Sink: nowhere{}, Clock: func() hook.Instant { return noon }, Sampling: Sampling{Ratio: float64(share) / 100},
	})
}

// BenchmarkPublished measures the span of a message without a context, on the reader's goroutine.
func BenchmarkPublished(b *testing.B) {
	for _, share := range shares {
		b.Run(fmt.Sprintf("%d%%", share), func(b *testing.B) {
			s := benchSpans(b, share)
			m := message(nil)
			x := indexOf(m.Props)
			b.ReportAllocs()
			for b.Loop() {
				if s != nil && s.SampleRoot() {
					injected := *m
					injected.Props, _ = s.Inject(m.Props, x)
					injected.Injected = true
					s.Published(&injected, "app", 1)
				}
			}
		})
	}
}

// The cost, on the queue's turn, of messages that leave in batches of 100.
func BenchmarkLeft(b *testing.B) {
	for _, share := range shares {
		b.Run(fmt.Sprintf("%d%%", share), func(b *testing.B) {
			s := benchSpans(b, share)
			ls := make([]Removal, 100)
			for i := range ls {
				ls[i] = expired(traced)
				ls[i].Traced = i < share
			}
			b.ReportAllocs()
			for range b.N / len(ls) {
				if s != nil {
					s.removed(place, noon, ls)
				}
			}
		})
	}
}

func BenchmarkJudge(b *testing.B) {
	s := benchSpans(b, 100)
	for b.Loop() {
		s.ParentSamplingOf(traced)
	}
}

// BenchmarkInject measures giving a message a context, without making its spans.
func BenchmarkInject(b *testing.B) {
	s := benchSpans(b, 1)
	m := message(nil)
	x := indexOf(m.Props)
	b.ReportAllocs()
	for b.Loop() {
		s.Inject(m.Props, x)
	}
}
