package dedup

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/curfewmq/curfew/sdk/hook"
)

// budget limits the number of entries for which all caches together have memory. Any goroutine may use it.
//
// The plugin is not notified when an exchange is deleted. The entries of its cache are returned when they are needed and the
// garbage collector has freed the cache.
type budget struct {
	most int64
	used atomic.Int64

	mu      sync.Mutex // guards the fields below
	caches  []holding
	counted hook.Instant // when deleted caches were last looked for
}

// holding is the memory of a cache, which may have been freed.
type holding struct {
	cache  weak.Pointer[cache]
	memory *atomic.Int64
}

// recountAfter is how long the budget stays used up before it looks again for freed caches.
const recountAfter = time.Second

// newCache returns a cache of at most size keys.
func (b *budget) newCache(size int) *cache {
	c := &cache{budget: b, size: size, memory: new(atomic.Int64)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.caches) == cap(b.caches) { // look before the slice grows
		b.removeGone()
	}
	b.caches = append(b.caches, holding{weak.Make(c), c.memory})
	return c
}

// take reserves n entries. It returns false if fewer are left.
func (b *budget) take(now hook.Instant, n int64) bool {
	if b.tryTake(n) {
		return true
	}
	return b.recount(now) && b.tryTake(n)
}

func (b *budget) tryTake(n int64) bool {
	if b.used.Add(n) <= b.most {
		return true
	}
	b.used.Add(-n)
	return false
}

func (b *budget) give(n int64) { b.used.Add(-n) }

// recount returns the entries of freed caches to the budget. It returns false if it did so shortly before.
func (b *budget) recount(now hook.Instant) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.counted != 0 && now >= b.counted && now.Sub(b.counted) < recountAfter {
		return false
	}
	b.counted = now
	b.removeGone()
	return true
}

// removeGone returns the entries of freed caches to the budget. The caller holds mu.
func (b *budget) removeGone() {
	b.caches = slices.DeleteFunc(b.caches, func(h holding) bool {
		if h.cache.Value() != nil {
			return false
		}
		b.give(h.memory.Load())
		return true
	})
}
