package dedup

import (
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/sdk/hook"
)

// cache remembers the keys of an exchange or a queue. Any goroutine may use it.
type cache struct {
	budget *budget
	size   int           // maximum number of keys
	memory *atomic.Int64 // entries for which it has memory

	mu    sync.Mutex // guards table
	table table
}

// expiredAtOnce is how many expired keys are removed when a key is added.
const expiredAtOnce = 4

// admit remembers a key until expires, 0 for ever. It returns false if the key is already remembered. If several callers pass the same key,
// one of them gets true. A key that expires immediately is not remembered. If there are too many keys, the oldest one is dropped.
func (c *cache) admit(now hook.Instant, k key, expires hook.Instant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &c.table
	if pos := t.find(k); pos != 0 {
		if !t.at(pos).expired(now) {
			return false
		}
		t.remove(pos)
	}
	c.removeExpired(now)
	if expires != 0 && expires <= now {
		return true
	}
	for t.count >= c.size {
		t.remove(t.oldest)
	}
	if c.reserve(now) {
		t.add(k, expires)
	}
	return true
}

func (e *entry) expired(now hook.Instant) bool { return e.expires != 0 && e.expires <= now }

func (c *cache) removeExpired(now hook.Instant) {
	t := &c.table
	for range expiredAtOnce {
		if t.oldest == 0 || !t.at(t.oldest).expired(now) {
			return
		}
		t.remove(t.oldest)
	}
}

// reserve makes room for another key. It returns false if there is none at all. If the budget is used up, the oldest key makes room.
func (c *cache) reserve(now hook.Instant) bool {
	t := &c.table
	n := t.growth()
	if n == 0 {
		return true
	}
	if t.capacity()+n <= maxEntries && c.budget.take(now, int64(n)) {
		t.grow(n)
		c.memory.Add(int64(n))
		return true
	}
	if t.count == 0 {
		return false
	}
	t.remove(t.oldest)
	return true
}

func (c *cache) forget(k key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pos := c.table.find(k); pos != 0 {
		c.table.remove(pos)
	}
	if c.table.idle() {
		c.reset()
	}
}

// clear removes all keys.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reset()
}

// reset empties the table and returns its memory to the budget.
func (c *cache) reset() {
	c.table = table{}
	c.budget.give(c.memory.Swap(0))
}

// count returns how many keys the cache remembers, including expired ones.
func (c *cache) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.count
}
