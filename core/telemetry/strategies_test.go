package telemetry

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

func TestStrategiesAreMadeOnceAndBounded(t *testing.T) {
	var s Strategies[atomic.Uint64]
	var made atomic.Uint64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 10 * maxStrategies {
				s.Of(strconv.Itoa(i%(2*maxStrategies)), func() *atomic.Uint64 {
					made.Add(1)
					return new(atomic.Uint64)
				}).Add(1)
			}
		})
	}
	all.Wait()
	if n := made.Load(); n != maxStrategies+1 {
		t.Errorf("%d were made, want %d", n, maxStrategies+1)
	}
	sum := uint64(0)
	for _, n := range s.All() {
		sum += n.Load()
	}
	if sum != 4*10*maxStrategies || s.All()[otherStrategy].Load() < sum/4 {
		t.Errorf("%d uses, %d of them of others", sum, s.All()[otherStrategy].Load())
	}
	if n := testing.AllocsPerRun(10, func() { s.Of("one too many", nil) }); n > 0 {
		t.Errorf("%v allocations for one that shares with others, want none", n)
	}
}
