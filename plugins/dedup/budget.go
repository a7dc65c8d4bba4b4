package dedup

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/curfewmq/curfew/sdk/hook"
)

// budget limits how many entries all caches have memory for. Any goroutine may use it.
//
// Nobody says when an exchange is deleted. When the garbage collector has freed its
// cache, what the cache held is given back as soon as someone needs it.
type budget struct {
	most int64
	used atomic.Int64

	mu      sync.Mutex // guards what follows
	caches  []holding
	counted hook.Instant // when those that are gone were looked for last
}

// holding is the memory of a cache, which may be gone.
type holding struct {
	cache  weak.Pointer[cache]
	memory *atomic.Int64
}

// recountAfter is how long the budget stays used up before it looks again for caches that
// are gone.
const recountAfter = time.Second

// newCache returns a cache of at most size keys.
func (b *budget) newCache(size int) *cache {
	c := &cache{budget: b, size: size, memory: new(atomic.Int64)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.caches) == cap(b.caches) { // before it grows
		b.removeGone()
	}
	b.caches = append(b.caches, holding{weak.Make(c), c.memory})
	return c
}

// take reserves n entries, and reports false if there are not as many left.
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

// recount gives back what caches held that are gone, and reports false if it did so
// shortly before.
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

// removeGone gives back what caches held that are gone. The caller holds mu.
func (b *budget) removeGone() {
	b.caches = slices.DeleteFunc(b.caches, func(h holding) bool {
		if h.cache.Value() != nil {
			return false
		}
		b.give(h.memory.Load())
		return true
	})
}
