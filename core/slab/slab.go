// Package slab provides memory outside the Go heap: pointer-free pieces, taken from the operating system and recycled. The garbage
// collector neither scans nor counts them, so millions of queued messages cost it nothing and do not delay collections.
package slab

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// The sizes of slabs are powers of two up to 256 KiB, and multiples of 64 KiB beyond: each of the latter holds one message, which
// should not take twice its size. Free slabs are reused first; beyond a small reserve their pages are returned to the system.
const (
	minBits      = 14      // 16 KiB; smaller pieces come from the Go heap: queues with few messages use them
	powerBits    = 18      // 256 KiB; larger slabs have sizes in grains
	maxSlab      = 1 << 20 // a larger slab is mapped by itself
	powers       = powerBits - minBits + 1
	grain        = 64 << 10
	firstGrains  = 1<<powerBits/grain + 1 // size of the first class after the powers of two
	regionSize   = 4 << 20
	reserve      = 16 << 20 // bytes of free slabs that stay resident in each class of a power of two
	grainReserve = 3 << 20  // likewise, in each of the other classes
)

// class holds the slabs of one size.
type class struct {
	mu     sync.Mutex // guards the fields below
	warm   [][]byte   // free and resident
	cold   [][]byte   // free, their pages returned to the system
	region []byte     // mapped and not yet cut
}

var (
	classes [powers + maxSlab/grain - firstGrains + 1]class
	large   largeSlabs
	used    atomic.Int64
	onHeap  atomic.Int64 // part of used that is in the Go heap
)

// Used returns the bytes of queued messages in the whole process.
func Used() int64 { return used.Load() }

// OnHeap returns the part of Used that lies in the Go heap: pieces too small for a slab.
func OnHeap() int64 { return onHeap.Load() }

// Alloc returns at least size bytes; their contents are undefined.
func Alloc(size int) []byte {
	switch {
	case size <= 1<<(minBits-1):
		used.Add(int64(size))
		onHeap.Add(int64(size))
		return make([]byte, size)
	case size > maxSlab:
		b := large.take(size)
		used.Add(int64(cap(b)))
		return b
	}
	class, whole := classOf(size)
	used.Add(int64(whole))
	return classes[class].take(whole)
}

// classOf returns the class of slabs for a size, and the size of a whole one.
func classOf(size int) (class, whole int) {
	if size <= 1<<powerBits {
		n := max(bits.Len(uint(size-1)), minBits)
		return n - minBits, 1 << n
	}
	grains := (size + grain - 1) / grain
	return powers + grains - firstGrains, grains * grain
}

// Free recycles a slab; its memory must not be used again.
func Free(b []byte) {
	b = b[:cap(b)]
	used.Add(-int64(len(b)))
	switch {
	case len(b) < 1<<minBits: // the garbage collector's
		onHeap.Add(-int64(len(b)))
	case len(b) > maxSlab:
		large.give(b)
	default:
		class, _ := classOf(len(b))
		classes[class].give(b)
	}
}

// Make returns n zero elements in a slab, at most 1 MiB, because FreeSlice does not know the
// size of a larger slab. T must not contain pointers, because the garbage collector does
// not look into slabs.
func Make[T any](n int) []T {
	var t T
	size := n * int(unsafe.Sizeof(t))
	if size < 1<<minBits {
		used.Add(int64(size))
		onHeap.Add(int64(size))
		return make([]T, n) // which is aligned for T
	}
	s := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(Alloc(size)))), n)
	clear(s)
	return s
}

// FreeSlice recycles a result of Make.
func FreeSlice[T any](s []T) {
	if cap(s) == 0 {
		return
	}
	size := cap(s) * int(unsafe.Sizeof(s[:1][0]))
	if size >= 1<<minBits && size <= maxSlab {
		_, size = classOf(size) // the whole slab
	}
	Free(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), size))
}

// AllocLarge returns at least size bytes, more than 1 MiB, that do not count as used.
func AllocLarge(size int) []byte { return large.take(size) }

// FreeLarge recycles a result of AllocLarge.
func FreeLarge(b []byte) { large.give(b) }

func (c *class) take(size int) []byte {
	b, resident := c.next(size)
	if !resident {
		populate(b) // a system call: not under the lock
	}
	return b
}

// next returns a slab and whether its pages are resident.
func (c *class) next(size int) (b []byte, resident bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, free := range [...]*[][]byte{&c.warm, &c.cold} {
		if n := len(*free); n > 0 {
			b := (*free)[n-1]
			*free = (*free)[:n-1]
			return b, free == &c.warm
		}
	}
	if len(c.region) < size { // the rest was never touched
		c.region = mapMemory(regionSize)
	}
	b, c.region = c.region[:size:size], c.region[size:]
	return b, false
}

func (c *class) give(b []byte) {
	most := reserve
	if len(b) > 1<<powerBits {
		most = grainReserve
	}
	c.mu.Lock()
	if len(c.warm)*len(b) < most {
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

// largeSlabs holds the slabs beyond the classes. Each contains one large message. Some free ones
// are kept, because the system clears every page that it provides.
type largeSlabs struct {
	mu       sync.Mutex // guards the fields below
	free     [][]byte   // the longest unused first
	retained int        // bytes of them
}

const (
	maxRetained      = 32 << 20 // bytes of free large slabs
	maxRetainedSlabs = 16
	// hugeSlab is the size from which a slab gets the largest pages that the system
	// has: it will be filled, and a fault for each small page would cost more.
	hugeSlab = 4 << 20
)

// take returns a slab of size bytes. Rather than make a new one, it reuses one that is up to a quarter larger.
func (l *largeSlabs) take(size int) []byte {
	l.mu.Lock()
	for i, b := range slices.Backward(l.free) {
		if n := len(b); n >= size && n <= size+size/4 {
			l.free = slices.Delete(l.free, i, i+1)
			l.retained -= n
			l.mu.Unlock()
			return b
		}
	}
	l.mu.Unlock()
	b := mapMemory((size + grain - 1) &^ (grain - 1))
	if len(b) >= hugeSlab {
		adviseHuge(b)
	}
	return b
}

func (l *largeSlabs) give(b []byte) {
	if len(b) > maxRetained {
		unmapMemory(b)
		return
	}
	l.mu.Lock()
	l.free = append(l.free, b)
	l.retained += len(b)
	var surplus [][]byte
	for l.retained > maxRetained || len(l.free) > maxRetainedSlabs {
		surplus = append(surplus, l.free[0])
		l.retained -= len(l.free[0])
		l.free = slices.Delete(l.free, 0, 1)
	}
	l.mu.Unlock()
	for _, b := range surplus {
		unmapMemory(b) // a system call: not under the lock
	}
}
