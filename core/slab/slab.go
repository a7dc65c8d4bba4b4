// Package slab provides memory outside the Go heap, in pieces that are used again.
package slab

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
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
	regionSize  = 4 << 20
	reserve     = 16 << 20 // bytes of free slabs a class keeps resident
)

// slabs is the process's slab memory. The mutex of a class guards its lists.
type slabClass struct {
	mu     sync.Mutex
	size   int
	warm   [][]byte // free and resident
	cold   [][]byte // free and given back to the system
	region []byte   // not yet handed out
	next   []byte   // the region after it, resident; nil = there is none yet
	making bool     // next is being made
	grown  bool     // there was more than one region
}

var slabClasses [maxSlabBits - minSlabBits + 1]slabClass

var used atomic.Int64

// Used returns the memory that queued messages hold in the whole process,
// in bytes: what the memory watermark is compared with.
func Used() int64 { return used.Load() }

// Alloc returns at least size bytes; their contents are undefined.
func Alloc(size int) []byte {
	class := max(bits.Len(uint(max(size, 1)-1)), 0)
	switch {
	case class < minSlabBits:
		used.Add(int64(size))
		return make([]byte, size)
	case class > maxSlabBits:
		b := large.take(size)
		used.Add(int64(cap(b)))
		return b
	}
	c := &slabClasses[class-minSlabBits]
	used.Add(1 << class)
	return c.take(1 << class)
}

// Free gives back a slab; its memory must not be used again.
func Free(b []byte) {
	b = b[:cap(b)]
	used.Add(-int64(len(b)))
	if len(b) < 1<<minSlabBits {
		return
	}
	if len(b) > 1<<maxSlabBits {
		large.give(b)
		return
	}
	slabClasses[bits.Len(uint(len(b)-1))-minSlabBits].give(b)
}

// Make returns n zero elements in a slab. T must not contain pointers: the garbage
// collector does not look into slabs.
func Make[T any](n int) []T {
	var t T
	size := n * int(unsafe.Sizeof(t))
	if size < 1<<minSlabBits {
		used.Add(int64(size))
		return make([]T, n) // which is aligned for T
	}
	s := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(Alloc(size)))), n)
	clear(s)
	return s
}

// FreeMade gives back what Make returned.
func FreeMade[T any](s []T) {
	if cap(s) == 0 {
		return
	}
	size := cap(s) * int(unsafe.Sizeof(s[:1][0]))
	if size >= 1<<minSlabBits && size <= 1<<maxSlabBits {
		size = 1 << bits.Len(uint(size-1)) // the whole slab
	}
	Free(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), size))
}

// largeSlabs are those beyond the classes, which large messages have to themselves. Some that are free are kept, because the
// system clears every page that it provides.
type largeSlabs struct {
	mu   sync.Mutex
	free [][]byte // the longest unused first
	kept int      // bytes of them
}

var large largeSlabs

// largeReserve is how many bytes of free large slabs stay resident, in no more than maxLarge pieces.
const (
	largeReserve = 32 << 20
	maxLarge     = 16
)

// take returns a slab of size bytes or, rather than a new one, of up to a quarter more.
func (l *largeSlabs) take(size int) []byte {
	l.mu.Lock()
	for i, b := range slices.Backward(l.free) {
		if n := len(b); n >= size && n <= size+size/4 {
			l.free = slices.Delete(l.free, i, i+1)
			l.kept -= n
			l.mu.Unlock()
			return b
		}
	}
	l.mu.Unlock()
	b := mapMemory((size + largeGrain - 1) &^ (largeGrain - 1))
	if len(b) >= hugeSlab {
		adviseHuge(b)
	}
	return b
}

// hugeSlab is the size from which on a slab is worth pages that are as large as the
// system has them: it will be filled, and a fault for each small page is dearer.
const hugeSlab = 4 << 20

// largeGrain is what sizes are rounded up to, so that slabs suit more messages than the one they were made for.
const largeGrain = 64 << 10

// give takes back a slab.
func (l *largeSlabs) give(b []byte) {
	if len(b) > largeReserve {
		unmapMemory(b)
		return
	}
	l.mu.Lock()
	l.free = append(l.free, b)
	l.kept += len(b)
	var surplus [][]byte
	for l.kept > largeReserve || len(l.free) > maxLarge {
		surplus = append(surplus, l.free[0])
		l.kept -= len(l.free[0])
		l.free = slices.Delete(l.free, 0, 1)
	}
	l.mu.Unlock()
	for _, b := range surplus {
		unmapMemory(b) // a system call: not under the lock
	}
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
		c.begin()
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

// begin goes on with another region. A class that needed one before will soon
// need the next. The caller holds mu.
func (c *slabClass) begin() {
	c.region, c.next = c.next, nil
	if c.region == nil {
		c.region = mapMemory(regionSize)
	}
	if c.grown && !c.making {
		c.making = true
		go c.prepare()
	}
	c.grown = true
}

// prepare makes the next region, resident, so that no turn waits for the system
// to find memory.
func (c *slabClass) prepare() {
	b := mapMemory(regionSize)
	if cost := touchMemory(b); cost > 0 {
		FaultCost.Store(int64(cost) / (regionSize / faultUnit))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next, c.making = b, false
}

// FaultCost is what memory costs that the system had to find first: nanoseconds of
// the processor's time for 256 KiB, 0 as long as nobody knows.
var FaultCost atomic.Int64

const faultUnit = 256 << 10

// AllocLarge is Alloc of more than 1 MiB that does not count as used.
func AllocLarge(size int) []byte { return large.take(size) }

// FreeLarge gives back what AllocLarge returned.
func FreeLarge(b []byte) { large.give(b) }
