package queue

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// Queued messages live in slabs: pointer-free memory in powers of two, taken
// from the operating system in regions outside the Go heap. The garbage
// collector neither scans nor counts them, so millions of queued messages cost
// it nothing and do not make it let garbage pile up; a slab that is given back
// is reused first and returned to the system beyond a small reserve.
//
// Small slabs, which a queue of a few messages has, come from the Go heap.
const (
	minSlabBits = 14 // 16 KiB; below, the Go heap serves
	maxSlabBits = 20 // 1 MiB; beyond, a region of its own
	regionSize  = 8 << 20
	reserve     = 16 << 20 // bytes of free slabs a class keeps resident
)

// slabs is the process's slab memory. The mutex of a class guards its lists.
type slabClass struct {
	mu     sync.Mutex
	size   int
	warm   [][]byte // free and resident
	cold   [][]byte // free and given back to the system
	region []byte   // not yet handed out
}

var slabClasses [maxSlabBits - minSlabBits + 1]slabClass

var used atomic.Int64

// UsedBytes returns the memory that queued messages hold in the whole process,
// in bytes: what the memory watermark is compared with.
func UsedBytes() int64 { return used.Load() }

// newSlab returns at least size bytes; their contents are undefined.
func newSlab(size int) []byte {
	class := max(bits.Len(uint(max(size, 1)-1)), 0)
	switch {
	case class < minSlabBits:
		used.Add(int64(size))
		return make([]byte, size)
	case class > maxSlabBits:
		used.Add(int64(size))
		return mapMemory(size)
	}
	c := &slabClasses[class-minSlabBits]
	used.Add(1 << class)
	return c.take(1 << class)
}

// freeSlab gives back a slab; its memory must not be used again.
func freeSlab(b []byte) {
	b = b[:cap(b)]
	used.Add(-int64(len(b)))
	if len(b) < 1<<minSlabBits {
		return
	}
	if len(b) > 1<<maxSlabBits {
		unmapMemory(b)
		return
	}
	slabClasses[bits.Len(uint(len(b)-1))-minSlabBits].give(b)
}

func (c *slabClass) take(size int) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.size = size
	if n := len(c.warm); n > 0 {
		b := c.warm[n-1]
		c.warm = c.warm[:n-1]
		return b
	}
	if n := len(c.cold); n > 0 {
		b := c.cold[n-1]
		c.cold = c.cold[:n-1]
		return b
	}
	if len(c.region) == 0 {
		c.region = mapMemory(regionSize)
	}
	b := c.region[:size:size]
	c.region = c.region[size:]
	return b
}

func (c *slabClass) give(b []byte) {
	c.mu.Lock()
	if len(c.warm)*c.size < reserve {
		c.warm = append(c.warm, b)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	releaseMemory(b) // a system call: not under the lock
	c.mu.Lock()
	c.cold = append(c.cold, b)
	c.mu.Unlock()
}
