package journal

import (
	"errors"
	"fmt"
	"testing"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// signal is a completer that wakes whoever waits for it.
type signal chan error

func (c signal) Durable()         { c <- nil }
func (c signal) Failed(err error) { c <- err }

// cycle is what a queue does in its turns: a record becomes live, and an earlier
// one dies.
type cycle struct {
	s    *Writer
	ops  []byte
	live [2]Delta
}

func newCycle(s *Writer, size int) *cycle {
	return &cycle{s: s, ops: make([]byte, size)}
}

func (y *cycle) commit(c Completer) {
	n := int64(len(y.ops))
	fresh := Delta{Extent: y.s.Extent(), Bytes: n}
	y.live[0] = fresh
	if y.live[1].Bytes == 0 {
		y.s.Commit(y.ops, y.live[:1], c)
	} else {
		y.s.Commit(y.ops, y.live[:2], c)
	}
	y.live[1] = Delta{Extent: fresh.Extent, Bytes: -n}
}

func TestCommitAllocatesNothing(t *testing.T) {
	s := open(t, &memLog{forget: true}, Options{Extent: 4096})
	defer s.Close(t.Context())
	y, done := newCycle(s, 200), make(signal, 100)
	turn := func() {
		for range cap(done) {
			y.commit(done)
		}
		for range cap(done) {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	for range 100 {
		turn()
	}
	if got := testing.AllocsPerRun(200, turn); got > 1 {
		t.Errorf("%v allocations in %d commits, want none", got, cap(done))
	}
}

// What a commit costs whoever makes it, and how many fit an append to a log that
// costs nothing.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 16 << 10} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			s := open(b, &memLog{forget: true}, Options{})
			y := newCycle(s, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if behind := s.CaughtUp(); behind != nil {
					<-behind
				}
				y.commit(nil)
			}
			if err := s.Close(b.Context()); err != nil {
				b.Error(err)
			}
			st := s.Stats()
			b.ReportMetric(float64(st.Commits)/float64(st.Appends), "commits/append")
		})
	}
}

func BenchmarkCommitFromManyGoroutines(b *testing.B) {
	s := open(b, &memLog{forget: true}, Options{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		y := newCycle(s, 1<<10)
		for pb.Next() {
			if behind := s.CaughtUp(); behind != nil {
				<-behind
			}
			y.commit(nil)
		}
	})
	if err := s.Close(b.Context()); err != nil {
		b.Error(err)
	}
}

// One commit at a time, from asleep to durable.
func BenchmarkRoundTrip(b *testing.B) {
	s := open(b, &memLog{forget: true}, Options{})
	y, done := newCycle(s, 1<<10), make(signal, 1)
	b.ReportAllocs()
	for b.Loop() {
		y.commit(done)
		<-done
	}
	if err := s.Close(b.Context()); err != nil {
		b.Error(err)
	}
}

// To a disk: a publisher with so many messages of 1 KiB in flight, in turns of
// up to sixteen.
func BenchmarkDurable(b *testing.B) {
	for _, window := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("%d in flight", window), func(b *testing.B) { durable(b, window) })
	}
}

func durable(b *testing.B, window int) {
	b.Helper()
	engine, err := seg.New(vfs.Dir(b.TempDir()), seg.Options{})
	if err != nil {
		b.Fatal(err)
	}
	s, err := Open(b.Context(), engine, 1, func(uint32, wlog.Index, []byte) error { return nil }, Options{})
	if err != nil {
		b.Fatal(err)
	}
	s.Recovered(nil)
	turn := min(16, window)
	y, done := newCycle(s, turn<<10), make(signal, window)
	flying := 0
	for n := 0; n < b.N; n += turn {
		for flying+turn > window {
			<-done
			flying -= turn
		}
		y.commit(done)
		flying += turn
	}
	if err := errors.Join(s.Close(b.Context()), engine.Close()); err != nil {
		b.Error(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	b.ReportMetric(float64(s.Stats().Appends)/b.Elapsed().Seconds(), "appends/s")
}
