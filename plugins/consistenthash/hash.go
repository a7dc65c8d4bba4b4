package consistenthash

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// Both hashes decide where messages go: their results must never change, on any machine.

const (
	wordFactor = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio, odd
	lastFactor = 0xd1342543de82ef95 // of a multiplicative generator with good spectral properties
)

// hashKey hashes the key by which a message is placed: its bytes in little-endian words of eight, the last one padded with zeros, and
// their number. Each word is multiplied into the hash, and both halves of the product are kept.
func hashKey[T string | []byte](key T) uint64 {
	h := uint64(len(key)) * lastFactor
	for len(key) >= 8 {
		word := uint64(key[0]) | uint64(key[1])<<8 | uint64(key[2])<<16 | uint64(key[3])<<24 |
			uint64(key[4])<<32 | uint64(key[5])<<40 | uint64(key[6])<<48 | uint64(key[7])<<56
		h = fold(h^word, wordFactor)
		key = key[8:]
	}
	var word uint64
	for i := range len(key) {
		word |= uint64(key[i]) << (8 * i)
	}
	return mix(fold(h^word, wordFactor))
}

func fold(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

// mix is the finaliser of SplitMix64: every bit of x changes about half of the result's bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashName hashes the identity of a destination. Clients that choose names must not be able to make two of them collide, because
// all points of these destinations would coincide.
func hashName(name string, toExchange bool) uint64 {
	kind := "queue "
	if toExchange {
		kind = "exchange "
	}
	sum := sha256.Sum256([]byte(kind + name))
	return binary.LittleEndian.Uint64(sum[:])
}
