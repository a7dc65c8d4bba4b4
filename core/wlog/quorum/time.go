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

// samples are lower bounds of how far a shard's time, which its owner knows, is ahead of the node's own clock. They belong to the replica's
// run.
//
// Each sample is too low by the time that its message took. An example: at 10.000 s of the node's clock a message arrives that the owner
// sent at 12.000 s of the shard's time, and that took 5 ms. The shard's time is ahead by 2.005 s, and the sample says 2.000 s. So the
// highest of several samples is the best.
type samples struct {
	term   uint64        // of the owner whose time the samples are about; 0 = there are none
	exact  time.Duration // exact difference from when this node was the owner, or the kept one of an earlier life
	known  bool          // exact is valid
	former bool          // exact is from an earlier life: other nodes get it as a claim, because the clock may have been set since
	latest [sampleCount]sample
	next   int
	claim  claim
}

// claim is the time of a later owner than samples are about, as other nodes know it from earlier lives. Their clocks may have been set
// since. So a claim does not replace samples, and can only lower the time, see offset.
type claim struct {
	term uint64 // of that owner; 0 = there is no claim
	sample
}

// source is the way in which a node learns an owner's time.
type source uint8

const (
	told    source = iota // from an entry, or from a node that knows the time from this life
	heard                 // from the owner, a moment ago
	claimed               // from a node that knows the time from an earlier life
)

type sample struct {
	ahead time.Duration
	from  hook.Instant // by the node's clock; 0 = there is no sample
}

const (
	sampleCount = 10
	samplePause = hook.Instant(time.Second) // samples closer together than this count as one
	margin      = time.Millisecond
	drift       = 10_000 // two running clocks drift apart by at most one part in so many
)

// kept is the part of a replica's knowledge of the shard's time that survives a restart: by how much at least the time of a term's owner is
// ahead of the machine's clock. The node's own clock is no measure: it begins with the machine's clock at each start, does not follow it
// while the node runs, and may have stood still with the machine.
type kept struct {
	term  uint64 // 0 = nothing is kept
	ahead time.Duration
}

const (
	keepSlack = time.Millisecond     // subtracted from a kept difference, because samples vary by as much
	keepSpan  = 5 * time.Millisecond // a kept difference that is too low by this much is written anew
	keepPause = hook.Instant(time.Second)
)

// claimSpan is by how much a claim may lower the time. A claim that is lower still is ignored: it comes from a clock that was set rather
// than from an owner that was stopped for a minute, and one node's wrong clock must not hold the shard's time back.
const claimSpan = time.Minute

// samplesOf returns the samples of a restarted replica on a node whose clock is ahead of the machine's by lead.
func samplesOf(k kept, lead time.Duration) samples {
	return samples{term: k.term, exact: k.ahead - lead, known: k.term > 0, former: k.term > 0}
}

// about reports whether a sample of a term's owner counts, because there is none of a later term. The first sample of a later term voids
// all earlier ones: a new owner's time may be less than that of the owner before.
func (s *samples) about(term uint64) bool {
	if term > s.term {
		c := s.claim
		if *s = (samples{term: term}); c.term > term {
			s.claim = c
		}
	}
	return term > 0 && term == s.term
}

// read takes a sample from an entry that the owner of term proposed at an instant of its time, and that this node received at now by its
// own clock, or before. The entry may be old.
func (s *samples) read(term uint64, at, now hook.Instant) {
	if s.about(term) {
		s.add(time.Duration(at-now), now)
	}
}

// hear takes a sample from a message that the owner of term sent a moment ago. It voids the difference from an earlier life, because the
// clock may have been set since.
func (s *samples) hear(term uint64, at, now hook.Instant) {
	if s.about(term) {
		s.known, s.former = false, false
		s.add(time.Duration(at-now), now)
	}
}

// hearClaim takes a claim that another node sent a moment ago. The highest of several claims about the same owner is the least wrong.
func (s *samples) hearClaim(term uint64, at, now hook.Instant) {
	ahead := time.Duration(at - now)
	if c := &s.claim; term > max(s.term, c.term) || term == c.term && ahead > c.ahead {
		*c = claim{term, sample{ahead, now}}
	}
}

// take is hear, hearClaim or read, depending on the source.
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

// latestKnown returns the term of the samples and a lower bound of that owner's time now; 0 = there are no samples. claim reports that they
// are from an earlier life.
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

// ahead returns a lower bound of how far the shard's time is ahead of the node's clock. There must be samples.
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

// least returns the lower bound that a sample gives now. It falls with time, because the clocks may drift apart.
func (s sample) least(now hook.Instant) time.Duration {
	return s.ahead - margin - time.Duration(now-s.from)/drift
}

// offset returns how far the shard's time is ahead of the node's clock when this node becomes the owner. As far as the node knows, the
// shard's time is then not ahead of the former owner's, and not before the time of the last entry. Without samples it is the node's own
// clock.
//
// trimmed is the term of the last trimmed entry. If it is later than the term of the samples, the node may never have received the entries
// of that owner, whose time may be less than the node's estimate. One of the electors had these entries, so its claim counts. An example:
// samples of term 3 make the time 12:10:00. The owner of term 5, all of whose entries are trimmed, was 2 s late, and an elector claims
// 12:09:58 for term 5. The new owner begins at 12:09:58. A claim of 12:10:02 would change nothing, because the elector's clock may have
// been set forward.
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

// keep returns what should be kept instead of k, on a node whose clock is ahead of the machine's by lead.
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

// remember updates the time that the group writes, if samples are about a later owner than that time. It is called before each write. So a
// node that has an entry of an owner also has that owner's time, and the time does not get ahead after all nodes were down.
func (r *replica) remember() {
	if r.samples.term > r.group.time.term {
		r.keep(r.clock())
	}
}

// refresh updates the time that the group writes, once a second, if the difference has changed.
func (r *replica) refresh() {
	now := r.clock()
	if now < r.kept+keepPause {
		return
	}
	r.kept = now
	r.keep(now)
}

// keep updates the time that the group writes.
func (r *replica) keep(now hook.Instant) {
	lead := time.Duration(int64(now) - clock.Machine()) // a lower bound, because now was read before the machine's clock
	r.group.time = r.samples.keep(r.group.time, now, lead)
}

// recall returns the samples that were kept in an earlier life.
func recall(k kept, own clock.Clock) samples {
	machine := clock.Machine()
	return samplesOf(k, time.Duration(int64(own())-machine)) // an upper bound, because machine was read before the node's clock
}

// Times returns the times of the shards that this node owns. The node should send them to the other nodes each second.
func (e *Engine) Times() (all []ShardTime) {
	for _, r := range e.all() {
		if e.owners.of(r.shard).Mine {
			all = append(all, ShardTime{Shard: r.shard, At: r.now()})
		}
	}
	return all
}

// now returns the shard's time. The node must own the shard.
func (r *replica) now() hook.Instant { return r.clock() + hook.Instant(r.offset.Load()) }

// Heard takes the Times that another node sent a moment ago. If this node takes over shards of that node, their times continue from there.
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

// ticks count the ticks of a replica's clock. A group needs every tick only while an election or the like is under way; else its goroutine
// sleeps over several ticks and counts them when it wakes up. They belong to run.
//
// All shards of a node have the same ticks, and sleeping shards wake up at the same multiples of heartbeatTicks. So the heartbeats of all
// shards cost one wake-up, and one write for each other node.
type ticks struct {
	began   time.Time
	each    time.Duration
	counted int64 // ticks since began that the group has counted
	planned int64 // the tick at which the group is to wake up
	timer   *time.Timer
	armed   int64 // the tick at which the timer fires; 0 = it is not armed
}

func newTicks(began time.Time, each time.Duration) *ticks {
	t := &ticks{began: began, each: each, timer: time.NewTimer(time.Hour)}
	t.counted = t.now()
	return t
}

func (t *ticks) stop() { t.timer.Stop() }

func (t *ticks) now() int64 { return int64(time.Since(t.began) / t.each) }

// plan arms the timer for one of the next n ticks: the next one if n is 1, else the last multiple of heartbeatTicks among them, if there is
// one, else the n-th. The timer may fire earlier for nothing.
func (t *ticks) plan(n int) {
	t.planned = t.counted + int64(n)
	if aligned := t.planned - t.planned%heartbeatTicks; aligned > t.counted {
		t.planned = aligned
	}
	if t.armed == 0 || t.planned < t.armed {
		t.armed = t.planned
		t.timer.Reset(time.Until(t.began.Add(time.Duration(t.armed) * t.each)))
	}
}

// fired notes that the timer has fired.
func (t *ticks) fired() { t.armed = 0 }

// passed returns how many passed ticks the group has not counted yet. Ticks after the planned one are skipped, because the node did not run
// then, and must not take its own pause for silence of other nodes.
func (t *ticks) passed() int64 {
	now := t.now()
	n := min(now, t.planned) - t.counted
	t.counted = now
	return max(n, 0)
}
