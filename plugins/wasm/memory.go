package wasm

import (
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental"
)

// memoryBudget is the memory left for all instances. Any goroutine may use it.
type memoryBudget struct {
	left atomic.Int64 // bytes
}

// take takes bytes from the budget. It returns false if too few are left.
func (a *memoryBudget) take(bytes int64) bool {
	if a.left.Add(-bytes) >= 0 {
		return true
	}
	a.left.Add(bytes)
	return false
}

// guestMemory is the memory of one instance, and belongs to it. It serves both as wazero's allocator and as the memory, because an instance
// has at most one memory.
type guestMemory struct {
	region
	budget  *memoryBudget
	total   *atomic.Int64 // bytes, of all instances of a version
	size    int64         // bytes
	refused bool          // growth was refused
}

var (
	_ experimental.MemoryAllocator = (*guestMemory)(nil)
	_ experimental.LinearMemory    = (*guestMemory)(nil)
)

// Allocate implements [experimental.MemoryAllocator].
func (m *guestMemory) Allocate(_, most uint64) experimental.LinearMemory {
	m.reserve(most)
	return m
}

// Reallocate implements [experimental.LinearMemory].
func (m *guestMemory) Reallocate(size uint64) []byte {
	more := int64(size) - m.size
	if !m.budget.take(more) {
		m.refused = true
		return nil
	}
	b := m.region.resize(size)
	if b == nil && size > 0 {
		m.budget.take(-more)
		m.refused = true
		return nil
	}
	m.size += more
	m.total.Add(more)
	return b
}

// Free implements [experimental.LinearMemory]. Further calls do nothing.
func (m *guestMemory) Free() {
	m.region.release()
	m.budget.take(-m.size)
	m.total.Add(-m.size)
	m.size = 0
}
