package quorum

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// benchTrio returns the log of a shard on three engines in this process and on one disk, and its owner's engine. A message takes as long as
// a goroutine needs to pass it on.
func benchTrio(b *testing.B) (wlog.Log, *Engine) {
	b.Helper()
	nodes := make([]*Engine, 4)
	pipes := make([]chan func(), 4)
	for id := wlog.NodeID(1); id <= 3; id++ {
		own := clock.New()
		l, err := seg.New(vfs.Dir(b.TempDir()), seg.Options{Clock: own})
		if err != nil {
			b.Fatal(err)
		}
		pipes[id] = make(chan func(), 1024)
		nodes[id], err = New(Options{
			Local: l, Node: id, Voters: []wlog.NodeID{1, 2, 3}, Shards: 1, Election: time.Second, Clock: own,
			Send: func(to wlog.NodeID, m Message) {
				pipes[to] <- func() {
					if err := nodes[to].Receive(id, m.Shard, m.Bytes); err != nil {
						b.Error(err)
					}
					if m.Done != nil {
						m.Done(true)
					}
				}
			},
		})
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			for deliver := range pipes[id] {
				deliver()
			}
		}()
	}
	for _, e := range nodes[1:] {
		if err := e.StartAll(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.Cleanup(func() {
		for _, e := range nodes[1:] {
			_ = e.Close()
		}
		for _, p := range pipes[1:] {
			close(p)
		}
	})
	log, err := nodes[1].Open(b.Context(), 0, func(wlog.Index, []byte) error { return nil })
	if err != nil {
		b.Fatal(err)
	}
	return log, nodes[1]
}

// BenchmarkAppend appends entries one after another. The log is trimmed, so that segments are reused.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 100 << 10, 4 << 20} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			log, _ := benchTrio(b)
			entry := make([]byte, size)
			took := make([]time.Duration, 0, b.N)
			indexes := make([]wlog.Index, 0, b.N)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				began := time.Now()
				at, err := log.Append(b.Context(), entry, wlog.Bringing)
				if err != nil {
					b.Fatal(err)
				}
				took, indexes = append(took, time.Since(began)), append(indexes, at)
				if n := len(indexes) - max(2, (64<<20)/size); n >= 0 {
					if err := log.Trim(indexes[n]); err != nil {
						b.Fatal(err)
					}
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs/p50")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs/p99")
		})
	}
}

// BenchmarkDepth has several appends on their way at a time.
func BenchmarkDepth(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10} {
		for _, depth := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("%d/%d", size, depth), func(b *testing.B) {
				log, _ := benchTrio(b)
				l := log
				entry := make([]byte, size)
				b.SetBytes(int64(size))
				var flying []<-chan wlog.Appended
				for b.Loop() {
					if len(flying) == depth {
						a := <-flying[0]
						if err := a.Err; err != nil {
							b.Fatal(err)
						}
						if err := l.Trim(a.At); err != nil {
							b.Fatal(err)
						}
						flying = flying[1:]
					}
					f, err := l.Begin(entry, wlog.Bringing)
					if err != nil {
						b.Fatal(err)
					}
					flying = append(flying, f)
				}
			})
		}
	}
}

// BenchmarkStatus asks an owner for its status.
func BenchmarkStatus(b *testing.B) {
	_, e := benchTrio(b)
	b.ReportAllocs()
	for b.Loop() {
		if st := e.Status(); len(st) != 1 || st[0].Role != Owner {
			b.Fatal(st)
		}
	}
}
