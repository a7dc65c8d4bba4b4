// Package block provides memory that several owners share.
package block

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/slab"
)

// Block is a piece of memory that several owners look into: a connection reads
// into it and the batches cut from it point there. The last Release recycles it.
type Block struct {
	Buf  []byte
	kind blockKind
	refs atomic.Int32
}

// blockKind says where the memory of a block goes when nobody owns it any more.
type blockKind uint8

const (
	pooled blockKind = iota // to the next block of its size
	queued                  // it is a slab, of a queue
	lone                    // it is a large slab that is in no queue, and not counted with those
)

// Retain adds an owner.
func (k *Block) Retain() { k.refs.Add(1) }

// Shared reports whether anybody but the caller owns the block.
func (k *Block) Shared() bool { return k.refs.Load() > 1 }

// Release drops an owner.
func (k *Block) Release() {
	if k.refs.Add(-1) == 0 {
		recycle(k)
	}
}

// Blocks come in powers of two between these sizes; larger ones are large slabs,
// which the system need not have cleared for the collector and has back at once.
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
		k := &Block{Buf: slab.AllocLarge(size), kind: lone}
		k.refs.Store(1)
		return k
	}
	if k, ok := pools[class-minBlockBits].Get().(*Block); ok {
		k.refs.Store(1)
		return k
	}
	return makePooled(1 << class)
}

func makePooled(size int) *Block {
	k := &Block{Buf: make([]byte, size)}
	k.refs.Store(1)
	return k
}

// OfSlab makes a block with one owner of a slab, which is free when it has none.
func OfSlab(b []byte) *Block {
	k := &Block{Buf: b[:cap(b)], kind: queued}
	k.refs.Store(1)
	return k
}

func recycle(k *Block) {
	switch k.kind {
	case queued:
		slab.Free(k.Buf)
		return
	case lone:
		slab.FreeLarge(k.Buf)
		return
	case pooled:
	}
	class := bits.Len(uint(len(k.Buf) - 1))
	if class > maxBlockBits || len(k.Buf) != 1<<class {
		return
	}
	pools[class-minBlockBits].Put(k)
}
