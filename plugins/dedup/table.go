package dedup

import "github.com/curfewmq/curfew/sdk/hook"

// table remembers keys in the order in which they came. It takes about 40 bytes a key and never moves many of them at once, so that its
// lock is held only briefly. The zero value is empty. It is for one goroutine at a time.
type table struct {
	chunks         [][]entry // by position / chunkEntries; only the first one grows
	free           uint32    // position of the first removed entry; 0 = none
	oldest, newest uint32    // positions; 0 = none
	count          int
	index          index
}

// entry is a key. The entries form a list from the oldest to the newest.
type entry struct {
	key
	expires      hook.Instant // 0 = never
	newer, older uint32       // positions; 0 = none. newer also links free entries
}

const (
	chunkEntries = 1024
	firstEntries = 8
	// maxEntries is the number of entries that positions can address.
	maxEntries = 1 << 30
)

// at returns the entry at a position. Positions count from 1.
func (t *table) at(pos uint32) *entry { return &t.chunks[(pos-1)/chunkEntries][(pos-1)%chunkEntries] }

// find returns the position of a key; 0 = it is not in the table.
func (t *table) find(k key) uint32 {
	if t.count == 0 {
		return 0
	}
	return t.index.find(t, k)
}

// growth returns for how many entries the table needs memory before it can add one.
func (t *table) growth() int {
	if t.free != 0 {
		return 0
	}
	if len(t.chunks) == 0 {
		return firstEntries
	}
	last := t.chunks[len(t.chunks)-1]
	switch {
	case len(last) < cap(last):
		return 0
	case len(t.chunks) == 1 && len(last) < chunkEntries:
		return cap(last)
	}
	return chunkEntries
}

// grow makes room for the n entries that growth returned.
func (t *table) grow(n int) {
	if len(t.chunks) == 1 && len(t.chunks[0]) < chunkEntries {
		t.chunks[0] = append(make([]entry, 0, cap(t.chunks[0])+n), t.chunks[0]...)
		return
	}
	t.chunks = append(t.chunks, make([]entry, 0, n))
}

// capacity returns the number of entries for which the table has memory.
func (t *table) capacity() int {
	switch n := len(t.chunks); n {
	case 0:
		return 0
	case 1:
		return cap(t.chunks[0])
	default:
		return n * chunkEntries
	}
}

// add adds a key as the newest. The key must not be in the table, and growth must be 0.
func (t *table) add(k key, expires hook.Instant) {
	pos := t.free
	if pos != 0 {
		t.free = t.at(pos).newer
	} else {
		last := len(t.chunks) - 1
		t.chunks[last] = append(t.chunks[last], entry{})
		pos = uint32(last*chunkEntries + len(t.chunks[last]))
	}
	*t.at(pos) = entry{key: k, expires: expires, older: t.newest}
	if t.newest != 0 {
		t.at(t.newest).newer = pos
	} else {
		t.oldest = pos
	}
	t.newest = pos
	t.count++
	t.index.add(t, k, pos)
}

// remove removes the entry at a position.
func (t *table) remove(pos uint32) {
	e := t.at(pos)
	t.index.remove(t, e.key, pos)
	if e.older != 0 {
		t.at(e.older).newer = e.newer
	} else {
		t.oldest = e.newer
	}
	if e.newer != 0 {
		t.at(e.newer).older = e.older
	} else {
		t.newest = e.older
	}
	*e = entry{newer: t.free}
	t.free = pos
	t.count--
}

// worthKeeping is the number of entries up to which an empty table keeps its memory.
const worthKeeping = chunkEntries

// idle reports whether the table has no keys, but memory that should be released.
func (t *table) idle() bool { return t.count == 0 && t.capacity() > worthKeeping }
