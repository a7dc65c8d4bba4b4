package peer

import (
	"slices"
	"sync"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Skew is the difference between the node's clock and those of the others.
type Skew struct {
	// Ahead is how far the clock is ahead of the median of all known clocks; of two, the slower one counts as right.
	Ahead time.Duration
	Level SkewLevel
}

// SkewLevel rates a skew.
type SkewLevel uint8

// The levels.
const (
	Fine   SkewLevel = iota
	Warned           // more than 250 ms
	Barred           // more than 1 s: the node should not own any shard
)

// Limits of skew.
const (
	WarnSkew = 250 * time.Millisecond
	BarSkew  = time.Second
)

// level returns the level of a skew. It only falls once the skew is a tenth below the limit.
func level(ahead time.Duration, before SkewLevel) SkewLevel {
	ahead = ahead.Abs()
	beyond := func(limit time.Duration, l SkewLevel) bool {
		if before >= l {
			limit -= limit / 10
		}
		return ahead > limit
	}
	switch {
	case beyond(BarSkew, Barred):
		return Barred
	case beyond(WarnSkew, Warned):
		return Warned
	}
	return Fine
}

// skew is the last reported state of the node's clock.
type skew struct {
	mu      sync.Mutex // guards current, and serializes calls of Options.Skewed
	current Skew
}

// sample is the answer to a ping.
type sample struct {
	trip   time.Duration // there and back
	offset time.Duration // of the other node's clock, relative to this node's
}

// samples are the latest answers, and the total number.
type samples struct {
	last [8]sample
	n    int
}

func (s *samples) add(x sample) {
	s.last[s.n%len(s.last)] = x
	s.n++
}

// best returns the sample with the shortest trip. Its offset is wrong by at most half of the trip.
func (s *samples) best() (sample, bool) {
	known := s.last[:min(s.n, len(s.last))]
	if len(known) == 0 {
		return sample{}, false
	}
	return slices.MinFunc(known, func(a, b sample) int { return int(a.trip - b.trip) }), true
}

// answered records the answer to a ping.
func (k *link) answered(sent, theirs hook.Instant) {
	now := k.links.options.Clock()
	trip := time.Duration(now - sent)
	if trip < 0 || trip > silence {
		return // it is not an answer to a ping of this stream
	}
	k.mu.Lock()
	k.offset.add(sample{trip: trip, offset: time.Duration(theirs - sent - hook.Instant(trip/2))})
	k.mu.Unlock()
	k.links.judgeClock()
}

func (k *link) forgetOffset() {
	k.mu.Lock()
	k.offset = samples{}
	k.mu.Unlock()
	k.links.judgeClock()
}

func (k *link) clock() (sample, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.offset.best()
}

// judgeClock compares the node's clock with those of the connected nodes.
func (l *Links) judgeClock() {
	l.skew.mu.Lock()
	defer l.skew.mu.Unlock()
	offsets := []time.Duration{0}
	for _, k := range l.all() {
		if s, ok := k.clock(); ok {
			offsets = append(offsets, s.offset)
		}
	}
	slices.Sort(offsets)
	before := l.skew.current
	ahead := -offsets[(len(offsets)-1)/2]
	l.skew.current = Skew{Ahead: ahead, Level: level(ahead, before.Level)}
	if l.skew.current.Level != before.Level {
		l.reports.skewed(l.skew.current)
		l.options.Skewed(l.skew.current)
	}
}

// Skew returns the difference between the node's clock and those of the others.
func (l *Links) Skew() Skew {
	l.skew.mu.Lock()
	defer l.skew.mu.Unlock()
	return l.skew.current
}
