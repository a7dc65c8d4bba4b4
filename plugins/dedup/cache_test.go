package dedup

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// model is a cache implemented as a list.
type model struct {
	size int
	all  []modelEntry
}

type modelEntry struct {
	key     key
	expires hook.Instant
}

func (m *model) find(k key) int {
	return slices.IndexFunc(m.all, func(e modelEntry) bool { return e.key == k })
}

func (m *model) admit(now hook.Instant, k key, expires hook.Instant) bool {
	expired := func(e modelEntry) bool { return e.expires != 0 && e.expires <= now }
	if i := m.find(k); i >= 0 {
		if !expired(m.all[i]) {
			return false
		}
		m.all = slices.Delete(m.all, i, i+1)
	}
	for n := 0; n < expiredAtOnce && len(m.all) > 0 && expired(m.all[0]); n++ {
		m.all = m.all[1:]
	}
	if expires != 0 && expires <= now {
		return true
	}
	if len(m.all) == m.size {
		m.all = m.all[1:]
	}
	m.all = append(m.all, modelEntry{k, expires})
	return true
}

func (m *model) forget(k key) {
	if i := m.find(k); i >= 0 {
		m.all = slices.Delete(m.all, i, i+1)
	}
}

// colliding returns keys of which many share their first and last bits, so that buckets fill up, split and wrap around.
func colliding(r *rand.Rand, values int) key {
	n := r.Uint64N(uint64(values))
	return key{high: n << 61 >> (n % 4), low: n * 0x9E37 >> 3}
}

func TestCacheAgainstAModel(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 0))
		size, values := 1+r.IntN(200), 1+r.IntN(400)
		c, m := (&budget{most: 1 << 20}).newCache(size), &model{size: size}
		at := now
		for step := range 5000 {
			k := colliding(r, values)
			at = at.Add(time.Duration(r.IntN(5)-1) * time.Millisecond) // sometimes back
			switch r.IntN(10) {
			case 0:
				c.forget(k)
				m.forget(k)
				continue
			case 1:
				if r.IntN(200) == 0 {
					c.clear()
					m.all = nil
				}
				continue
			}
			var expires hook.Instant
			if r.IntN(2) == 0 {
				expires = at.Add(time.Duration(r.IntN(100)-1) * time.Millisecond)
			}
			if got, want := c.admit(at, k, expires), m.admit(at, k, expires); got != want {
				t.Fatalf("seed %d, step %d: admitted %t, want %t", seed, step, got, want)
			}
			if c.count() != len(m.all) {
				t.Fatalf("seed %d, step %d: remembers %d, want %d", seed, step, c.count(), len(m.all))
			}
		}
	}
}

// Buckets split thousands of times, and every key is still found.
func TestManyKeys(t *testing.T) {
	const n = 300_000
	c := (&budget{most: n + chunkEntries}).newCache(n)
	r := rand.New(rand.NewPCG(1, 2))
	keys := make([]key, n)
	for i := range keys {
		keys[i] = key{r.Uint64(), r.Uint64()}
		if !c.admit(now, keys[i], 0) {
			t.Fatalf("key %d is new, and was refused", i)
		}
	}
	for i, k := range keys {
		if c.admit(now, k, 0) {
			t.Fatalf("key %d was forgotten", i)
		}
	}
	r.Shuffle(n, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for i, k := range keys {
		c.forget(k)
		if c.count() != n-i-1 {
			t.Fatalf("after %d were removed: %d are left", i+1, c.count())
		}
	}
	if c.memory.Load() != 0 || c.budget.used.Load() != 0 {
		t.Errorf("an empty cache holds %d entries, %d of the budget", c.memory.Load(), c.budget.used.Load())
	}
}

func TestBudget(t *testing.T) {
	b := &budget{most: 20}
	first, second := b.newCache(100), b.newCache(100)
	for i := range uint64(100) {
		if !first.admit(now, key{i, i}, 0) {
			t.Fatal("a new key was refused")
		}
	}
	if first.count() != 16 || first.admit(now, key{99, 99}, 0) {
		t.Errorf("got %d keys, want the 16 newest", first.count())
	}
	for range 2 {
		if !second.admit(now, key{1, 1}, 0) {
			t.Error("without memory for one key, a message is refused")
		}
	}
	if used := b.used.Load(); used != 16 {
		t.Errorf("used %d, want 16", used)
	}
	first.clear()
	if !second.admit(now, key{1, 1}, 0) || second.admit(now, key{1, 1}, 0) {
		t.Error("what was given back was not taken")
	}
}

// When an exchange is deleted, its cache goes without any notification of the plugin.
func TestBudgetOfDeletedExchanges(t *testing.T) {
	b := &budget{most: 20}
	func() {
		gone := b.newCache(100)
		for i := range uint64(100) {
			gone.admit(now, key{i, i}, 0)
		}
	}()
	runtime.GC()
	c := b.newCache(100)
	if !c.admit(now, key{1, 1}, 0) || c.admit(now, key{1, 1}, 0) {
		t.Errorf("the deleted exchange still has its share: %d used", b.used.Load())
	}
	if used := b.used.Load(); used != firstEntries {
		t.Errorf("used %d, want %d", used, firstEntries)
	}
}

func TestAdmitDoesNotAllocate(t *testing.T) {
	const n = 4096
	c := (&budget{most: 2 * n}).newCache(n)
	i := uint64(0)
	admit := func() {
		i++
		k := key{i * 0x9E3779B97F4A7C15, i * 0xC2B2AE3D27D4EB4F}
		c.admit(now, k, 0)
		c.admit(now, k, 0)
	}
	for range 4 * n {
		admit()
	}
	if allocs := testing.AllocsPerRun(n, admit); allocs > 0 {
		t.Errorf("%.1f allocations per message", allocs)
	}
}
