package quorum

import (
	"math"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// ShardTime is the time of a shard, by its owner's clock.
type ShardTime struct {
	Shard uint32
	At    hook.Instant
}

// samples say how far a shard's time, which its owner knows, is ahead of the node's own clock. A message takes a while, so that each of
// them is at most what it would be if it took no time. They belong to the replica's run.
type samples struct {
	term   uint64        // of the owner that they are about; 0 = there are none
	exact  time.Duration // what it was when this node was the owner, or what it knew in an earlier life; see known
	known  bool
	former bool // what is known is from an earlier life: for others it is a claim only, as the clock may have been set since
	latest [sampleCount]sample
	next   int
	claim  claim
}

// claim is what other nodes know of the time of a later owner than samples are about, from earlier lives. Their clocks may have been set since:
// so it does not replace what the node knows, and only makes it less, see offset.
type claim struct {
	term uint64 // of that owner; 0 = there is none
	sample
}

// source says how a node gets to know an owner's time.
type source uint8

const (
	told    source = iota // by an entry, or by a node that knows it from this life
	heard                 // by that owner, a moment ago
	claimed               // by a node that knows it from an earlier life
)

type sample struct {
	ahead time.Duration
	from  hook.Instant // by the own clock; 0 = there is none
}

const (
	sampleCount = 10
	samplePause = hook.Instant(time.Second) // those that are closer together are one
	margin      = time.Millisecond
	drift       = 10_000 // two clocks that run differ by one part of that, at most
)

// kept is what a replica knows of the shard's time after a restart: how far the time of the owner of a term is ahead of the machine's clock,
// or less. The node's own clock is no measure: it does not follow the machine's while the node runs, begins with that at the next start, and
// may have stood still with the machine.
type kept struct {
	term  uint64 // 0 = nothing
	ahead time.Duration
}

const (
	keepSlack = time.Millisecond     // that what is kept is less than it seems: samples differ by as much
	keepSpan  = 5 * time.Millisecond // from that on, what is kept is too little
	keepPause = hook.Instant(time.Second)
)

// claimSpan is how much less than what a node knows a claim may make the time. No owner is that late but for one that was stopped as long: rather,
// a clock has been set, and one node must not hold the time back by that.
const claimSpan = time.Minute

// samplesOf returns the samples of a replica that has been restarted, on a node whose clock leads that of the machine.
func samplesOf(k kept, lead time.Duration) samples {
	return samples{term: k.term, exact: k.ahead - lead, known: k.term > 0, former: k.term > 0}
}

// about reports whether what is known of the owner of a term matters: there is no later one. What is known of earlier ones is void then: an
// owner's time may be less than that of the one before.
func (s *samples) about(term uint64) bool {
	if term > s.term {
		c := s.claim
		if *s = (samples{term: term}); c.term > term {
			s.claim = c
		}
	}
	return term > 0 && term == s.term
}

// read takes a sample from an entry of the owner of a term: that was proposed at an instant of its time, and the own clock says now, or
// less. The entry may be an old one.
func (s *samples) read(term uint64, at, now hook.Instant) {
	if s.about(term) {
		s.add(time.Duration(at-now), now)
	}
}

// hear takes a sample that the owner of a term has sent a moment ago. What the node knew in an earlier life is not needed any more: its clock
// may have been set since.
func (s *samples) hear(term uint64, at, now hook.Instant) {
	if s.about(term) {
		s.known, s.former = false, false
		s.add(time.Duration(at-now), now)
	}
}

// hearClaim takes a claim that another node has sent a moment ago. Of those about the same owner, the highest is the least wrong.
func (s *samples) hearClaim(term uint64, at, now hook.Instant) {
	ahead := time.Duration(at - now)
	if c := &s.claim; term > max(s.term, c.term) || term == c.term && ahead > c.ahead {
		*c = claim{term, sample{ahead, now}}
	}
}

// take is hear, read or hearClaim.
func (s *samples) take(term uint64, at, now hook.Instant, by source) {
	switch by {
	case heard:
		s.hear(term, at, now)
	case claimed:
		s.hearClaim(term, at, now)
	default:
		s.read(term, at, now)
	}
}

// latestKnown returns the term of the samples, and what that owner's time is now, or less; 0 if there are none. claim reports that it is one.
func (s *samples) latestKnown(now hook.Instant) (term uint64, at hook.Instant, claim bool) {
	if s.term == 0 {
		return 0, 0, false
	}
	return s.term, now + hook.Instant(s.ahead(now)), s.former
}

// own notes that the node is the owner in a term.
func (s *samples) own(term uint64, ahead time.Duration) {
	*s = samples{term: term, exact: ahead, known: true}
}

func (s *samples) add(ahead time.Duration, now hook.Instant) {
	last := &s.latest[(s.next+sampleCount-1)%sampleCount]
	if last.from > 0 && now < last.from+samplePause {
		last.ahead = max(last.ahead, ahead)
		return
	}
	s.latest[s.next] = sample{ahead, now}
	s.next = (s.next + 1) % sampleCount
}

// ahead returns how far the shard's time is ahead of the own clock, or less. There are samples.
func (s *samples) ahead(now hook.Instant) time.Duration {
	most := time.Duration(math.MinInt64)
	if s.known {
		most = s.exact
	}
	for _, one := range s.latest {
		if one.from > 0 {
			most = max(most, one.least(now))
		}
	}
	return most
}

// least returns how far the shard's time is ahead of the own clock by now, or less.
func (s sample) least(now hook.Instant) time.Duration {
	return s.ahead - margin - time.Duration(now-s.from)/drift
}

// offset returns what the shard's time is ahead of the own clock when this node becomes its owner. It is never more than it was with the
// owner before, as far as one knows, and the shard's time is not less than that of its last entry. Without any sample it is the own
// clock's.
//
// trimmed is the term of the last entry that is gone. If its owner is a later one than the samples are about, the node may never have had entries
// that say that one's time, and that may be less than the node knows. Of those who elected the node, one had these entries, and what that one
// claims counts then. It does not make the time more, as its clock may have been set forward.
func (s *samples) offset(now, last hook.Instant, trimmed uint64) time.Duration {
	ahead := time.Duration(0)
	if s.term > 0 {
		ahead = s.ahead(now)
	}
	if s.claim.term > 0 && trimmed > s.term {
		if less := s.claim.least(now); less > ahead-claimSpan {
			ahead = min(ahead, less)
		}
	}
	return max(ahead, time.Duration(last-now))
}

// keep returns what should be kept, where k is, on a node whose clock leads that of the machine.
func (s *samples) keep(k kept, now hook.Instant, lead time.Duration) kept {
	if s.term == 0 {
		return k
	}
	ahead := s.ahead(now) + lead
	if s.term == k.term && ahead >= k.ahead && ahead < k.ahead+keepSpan {
		return k
	}
	return kept{s.term, ahead - keepSlack}
}

// remember has the group write what is known of the shard's time, if it is of a later owner than what it has written. If the group has
// an entry of an owner, it has that, too: so the time does not get ahead when all nodes were down.
func (r *replica) remember() {
	if r.samples.term > r.group.time.term {
		r.keep(r.clock())
	}
}

// refresh has the group write what is known of the shard's time, if that has changed.
func (r *replica) refresh() {
	now := r.clock()
	if now < r.kept+keepPause {
		return
	}
	r.kept = now
	r.keep(now)
}

// keep has the group write what is known of the shard's time now.
func (r *replica) keep(now hook.Instant) {
	lead := time.Duration(int64(now) - clock.Machine()) // or less, as now is read before
	r.group.time = r.samples.keep(r.group.time, now, lead)
}

// recall returns what was known of the shard's time in an earlier life.
func recall(k kept, own clock.Clock) samples {
	machine := clock.Machine()
	return samplesOf(k, time.Duration(int64(own())-machine)) // or more, as it is read before
}

// Times returns the times of the shards that this node owns. The other nodes should hear of them each second.
func (e *Engine) Times() (all []ShardTime) {
	for _, r := range e.all() {
		if e.owners.of(r.shard).Mine {
			all = append(all, ShardTime{Shard: r.shard, At: r.now()})
		}
	}
	return all
}

// now returns the shard's time, if this node owns it.
func (r *replica) now() hook.Instant { return r.clock() + hook.Instant(r.offset.Load()) }

// Heard takes what Times has returned at another node, a moment ago. When that node ends, and this one takes its shards over, their
// times go on from there.
func (e *Engine) Heard(from wlog.NodeID, times []ShardTime) {
	for _, t := range times {
		r := e.running(t.Shard)
		if r == nil {
			continue
		}
		now := r.clock()
		_ = r.do(func() {
			if r.group.leader == uint64(from) {
				r.samples.hear(r.group.term, t.At, now)
			}
		})
	}
}
