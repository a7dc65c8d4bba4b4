package death

import (
	"hash/maphash"
	"sync"
)

// Warnings remembers which warnings were logged, so that each is logged once. At a limit it forgets all of them, so that a cycle through
// ever new queues does not take ever more memory. It is safe for concurrent use; the zero value is ready.
type Warnings struct {
	mu   sync.Mutex // guards seen
	seen map[uint64]struct{}
	seed maphash.Seed
}

const maxWarnings = 4096

// First reports whether this history, cut short at this queue, is new, so that its [History.Warning] must be logged. It is
// cheap enough to be called for every message in a cycle.
func (w *Warnings) First(h *History, queue string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == nil {
		w.seen, w.seed = map[uint64]struct{}{}, maphash.MakeSeed()
	}
	sum := h.sum(w.seed, queue)
	if _, logged := w.seen[sum]; logged {
		return false
	}
	if len(w.seen) == maxWarnings {
		clear(w.seen)
	}
	w.seen[sum] = struct{}{}
	return true
}

// sum hashes the list of queues in the warning.
func (h *History) sum(seed maphash.Seed, queue string) uint64 {
	var m maphash.Hash
	m.SetSeed(seed)
	for _, name := range [...]string{queue, h.queue} {
		m.WriteString(name)
		m.WriteByte(0)
	}
	for _, e := range h.earlier {
		m.Write(e.queue)
		m.WriteByte(0)
	}
	return m.Sum64()
}
