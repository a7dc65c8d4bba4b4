// Package block provides memory that several owners share.
package block

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/slab"
)

// Block is memory with several owners. A connection reads into it, and the batches of
// messages retain it while their bytes are used. The last Release recycles it.
type Block struct {
	Buf  []byte
	kind kind
	refs atomic.Int32
}

// kind says where the memory goes after the last Release.
type kind uint8

const (
	pooled kind = iota // to a pool of its size
	queued             // to the slabs, as memory of queued messages
	lone               // to the large slabs that do not count as used
)

// Retain adds an owner.
func (k *Block) Retain() { k.refs.Add(1) }

// Shared reports whether anybody but the caller owns the block.
func (k *Block) Shared() bool { return k.refs.Load() > 1 }

// Release drops an owner.
func (k *Block) Release() {
	if k.refs.Add(-1) == 0 {
		k.recycle()
	}
}

// Pooled blocks have the sizes of powers of two. Larger ones are large slabs: these need
// not be cleared for the garbage collector, and are returned to the system at once.
const (
	minBlockBits = 12 // 4 KiB
	maxBlockBits = 24 // 16 MiB
)

var pools [maxBlockBits - minBlockBits + 1]sync.Pool

// New returns a block of at least size bytes with one owner, the caller.
// Its contents are undefined.
func New(size int) *Block {
	class := max(bits.Len(uint(max(size, 1)-1)), minBlockBits)
	if class > maxBlockBits {
		return newBlock(slab.AllocLarge(size), lone)
	}
	if k, ok := pools[class-minBlockBits].Get().(*Block); ok {
		k.refs.Store(1)
		return k
	}
	return newBlock(make([]byte, 1<<class), pooled)
}

// OfSlab makes a block of a slab, with one owner. The slab is freed after the last Release.
func OfSlab(b []byte) *Block { return newBlock(b[:cap(b)], queued) }

func newBlock(b []byte, goesTo kind) *Block {
	k := &Block{Buf: b, kind: goesTo}
	k.refs.Store(1)
	return k
}

func (k *Block) recycle() {
	switch k.kind {
	case queued:
		slab.Free(k.Buf)
	case lone:
		slab.FreeLarge(k.Buf)
	case pooled:
		pools[bits.Len(uint(len(k.Buf)-1))-minBlockBits].Put(k)
	}
}
