package wasm

import (
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental"
)

// memoryBudget is memory that instances share. Any goroutine may use it.
type memoryBudget struct {
	left atomic.Int64 // bytes
}

// take reports whether so much is left, and takes it if so.
func (a *memoryBudget) take(bytes int64) bool {
	if a.left.Add(-bytes) >= 0 {
		return true
	}
	a.left.Add(bytes)
	return false
}

// guestMemory is the memory of one instance: it makes wazero's memory and is it,
// since an instance has no more than one. It belongs to the instance.
type guestMemory struct {
	region
	budget  *memoryBudget
	total   *atomic.Int64 // bytes, of all instances of a version
	size    int64         // bytes
	refused bool          // growth was, for want of an allowance
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

// Free implements [experimental.LinearMemory]. It may be called again.
func (m *guestMemory) Free() {
	m.region.release()
	m.budget.take(-m.size)
	m.total.Add(-m.size)
	m.size = 0
}
