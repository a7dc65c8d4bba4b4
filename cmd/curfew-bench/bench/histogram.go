package bench

import (
	"math"
	"math/bits"
	"sync"
)

// subBits sets the resolution: 64 linear steps per power of two, so that a reported value is at most 1.6 % above the true one.
const (
	subBits  = 6
	nBuckets = (63-1-subBits)<<subBits + 1<<(subBits+1)
)

// histogram counts durations in nanoseconds in a fixed number of log-linear buckets, so recording does not allocate. Negative values,
// of messages before their deadline, have separate buckets. The zero value is empty and ready for use. A histogram belongs to one
// goroutine.
type histogram struct {
	late, early [nBuckets]uint64
	n           uint64
	min, max    int64
}

// record counts n observations of v.
func (h *histogram) record(v int64, n uint64) {
	if n == 0 {
		return
	}
	v = max(v, -math.MaxInt64)
	h.widen(v, v)
	h.n += n
	if v < 0 {
		h.early[bucket(uint64(-v))] += n
		return
	}
	h.late[bucket(uint64(v))] += n
}

// widen extends the bounds. It must be called before n grows: for an empty histogram it sets them.
func (h *histogram) widen(lo, hi int64) {
	if h.n == 0 {
		h.min, h.max = lo, hi
		return
	}
	h.min, h.max = min(h.min, lo), max(h.max, hi)
}

// merge adds the counts of o.
func (h *histogram) merge(o *histogram) {
	if o.n == 0 {
		return
	}
	h.widen(o.min, o.max)
	h.n += o.n
	for i := range o.late {
		h.late[i] += o.late[i]
		h.early[i] += o.early[i]
	}
}

// quantile returns a value that at least the share q (0 to 1) of the observations does not exceed: the upper edge of its bucket, or the
// largest value if that is smaller. It returns 0 for an empty histogram.
func (h *histogram) quantile(q float64) int64 {
	if h.n == 0 {
		return 0
	}
	rank := max(1, uint64(math.Ceil(q*float64(h.n))))
	var seen uint64
	for i := nBuckets - 1; i >= 0; i-- {
		if seen += h.early[i]; seen >= rank {
			return h.clamp(-bucketLow(i))
		}
	}
	for i := range h.late {
		if seen += h.late[i]; seen >= rank {
			return h.clamp(bucketHigh(i))
		}
	}
	return h.max
}

func (h *histogram) clamp(v int64) int64 { return min(max(v, h.min), h.max) }

// bucket returns the bucket of a value. Each value below 128 has its own. A larger value is shifted right by e, so that seven bits
// remain, m (64 to 127), and is in bucket e*64+m: for 1000, e is 3 and m is 125, so bucket 317 has 1000 to 1007.
func bucket(v uint64) int {
	e := bits.Len64(v) - 1 - subBits
	if e < 0 {
		return int(v)
	}
	return e<<subBits + int(v>>e)
}

func bucketLow(i int) int64 {
	if i < 1<<(subBits+1) {
		return int64(i)
	}
	e := i>>subBits - 1
	return int64(i-e<<subBits) << e
}

func bucketHigh(i int) int64 {
	if i == nBuckets-1 {
		return math.MaxInt64
	}
	return bucketLow(i+1) - 1
}

// negative returns the number of observations below zero.
func (h *histogram) negative() (n uint64) {
	for _, c := range h.early {
		n += c
	}
	return n
}

// tally is a histogram that one goroutine fills and another one empties.
type tally struct {
	mu sync.Mutex // guards h
	h  histogram
}

func (t *tally) record(v int64, n uint64) {
	t.mu.Lock()
	t.h.record(v, n)
	t.mu.Unlock()
}

// collect moves the counts since its last call into h.
func (t *tally) collect(h *histogram) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.h.n == 0 {
		return
	}
	h.merge(&t.h)
	t.h = histogram{}
}
