package queue

import (
	"math/bits"
	"sync"
)

// Blocks come in powers of two between these sizes; larger ones are large slabs,
// which the system need not have cleared for the collector and has back at once.
const (
	minBlockBits = 12 // 4 KiB
	maxBlockBits = 24 // 16 MiB
)

var blockPools [maxBlockBits - minBlockBits + 1]sync.Pool

// NewBlock returns a block of at least size bytes with one owner, the caller.
// Its contents are undefined.
func NewBlock(size int) *Block {
	class := max(bits.Len(uint(max(size, 1)-1)), minBlockBits)
	if class > maxBlockBits {
		k := &Block{Buf: large.take(size), kind: lone}
		k.refs.Store(1)
		return k
	}
	if k, ok := blockPools[class-minBlockBits].Get().(*Block); ok {
		k.refs.Store(1)
		return k
	}
	return newBlock(1 << class)
}

func newBlock(size int) *Block {
	k := &Block{Buf: make([]byte, size)}
	k.refs.Store(1)
	return k
}

// slabBlock makes a block with one owner of a slab, which is free when it has none.
func slabBlock(b []byte) *Block {
	k := &Block{Buf: b[:cap(b)], kind: slab}
	k.refs.Store(1)
	return k
}

func recycle(k *Block) {
	switch k.kind {
	case slab:
		freeSlab(k.Buf)
		return
	case lone:
		large.give(k.Buf)
		return
	case pooled:
	}
	class := bits.Len(uint(len(k.Buf) - 1))
	if class > maxBlockBits || len(k.Buf) != 1<<class {
		return
	}
	blockPools[class-minBlockBits].Put(k)
}
