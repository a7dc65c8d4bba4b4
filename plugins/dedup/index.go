package dedup

// index finds entries of a table by key. It is a directory of small hash tables (extendible hashing), which are split one at a time as they
// fill up.
type index struct {
	directory []*bucket // by the first bits of a key
	depth     uint      // number of these bits
}

// bucket is a hash table of positions with linear probing; 0 means an empty slot.
type bucket struct {
	slots []uint32 // a power of two
	count int
	depth uint // number of first bits that all keys here share
}

const (
	firstSlots = 16
	mostSlots  = 2048
	mostDepth  = 32 // keys are random, so buckets never get this deep
)

// fullAt returns how many of n slots may be used.
func fullAt(n int) int { return n * 3 / 4 }

func (x *index) bucket(k key) *bucket { return x.directory[x.number(k)] }

func (x *index) number(k key) uint64 {
	if x.depth == 0 {
		return 0
	}
	return k.high >> (64 - x.depth)
}

func (x *index) find(t *table, k key) uint32 {
	b := x.bucket(k)
	for i := b.home(k); ; i = b.next(i) {
		pos := b.slots[i]
		if pos == 0 || t.at(pos).key == k {
			return pos
		}
	}
}

func (x *index) add(t *table, k key, pos uint32) {
	if x.directory == nil {
		x.directory = []*bucket{{slots: make([]uint32, firstSlots)}}
	}
	b := x.bucket(k)
	for b.count >= fullAt(len(b.slots)) {
		if len(b.slots) < mostSlots || b.depth >= mostDepth {
			b.grow(t)
			continue
		}
		x.split(t, b, k)
		b = x.bucket(k)
	}
	b.add(k, pos)
}

// split replaces the bucket of k by two buckets, one for each value of the next bit.
func (x *index) split(t *table, b *bucket, k key) {
	if b.depth == x.depth {
		x.double()
	}
	deeper := b.depth + 1
	halves := [2]*bucket{
		{slots: make([]uint32, mostSlots), depth: deeper},
		{slots: make([]uint32, mostSlots), depth: deeper},
	}
	for _, pos := range b.slots {
		if pos != 0 {
			e := t.at(pos).key
			halves[e.high>>(64-deeper)&1].add(e, pos)
		}
	}
	shared := x.depth - deeper // directory numbers of one half share this many last bits
	first := x.number(k) >> (shared + 1) << (shared + 1)
	for i := range uint64(2) << shared {
		x.directory[first+i] = halves[i>>shared]
	}
}

// double gives each bucket two places in the directory.
func (x *index) double() {
	d := make([]*bucket, 2*len(x.directory))
	for i := range d {
		d[i] = x.directory[i/2]
	}
	x.directory = d
	x.depth++
}

func (x *index) remove(t *table, k key, pos uint32) {
	b := x.bucket(k)
	i := b.home(k)
	for b.slots[i] != pos {
		i = b.next(i)
	}
	b.count--
	for j := b.next(i); b.slots[j] != 0; j = b.next(j) { // move entries that would not be found after the gap
		if home := b.home(t.at(b.slots[j]).key); b.distance(home, j) >= b.distance(i, j) {
			b.slots[i] = b.slots[j]
			i = j
		}
	}
	b.slots[i] = 0
}

// home returns the slot where the search for a key begins.
func (b *bucket) home(k key) int { return int(k.low & uint64(len(b.slots)-1)) }

func (b *bucket) next(i int) int { return (i + 1) & (len(b.slots) - 1) }

// distance returns the number of steps from one slot to another.
func (b *bucket) distance(from, to int) int { return (to - from) & (len(b.slots) - 1) }

func (b *bucket) add(k key, pos uint32) {
	i := b.home(k)
	for b.slots[i] != 0 {
		i = b.next(i)
	}
	b.slots[i] = pos
	b.count++
}

func (b *bucket) grow(t *table) {
	old := b.slots
	b.slots, b.count = make([]uint32, 2*len(old)), 0
	for _, pos := range old {
		if pos != 0 {
			b.add(t.at(pos).key, pos)
		}
	}
}
