package quorum

import (
	"time"

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
	owner  uint64 // whose they are; 0 = there are none
	latest [sampleCount]sample
	next   int
}

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

// add takes a sample: when the owner said at, the own clock said now, or less.
func (s *samples) add(owner uint64, at, now hook.Instant) {
	if owner == 0 {
		return
	}
	if owner != s.owner {
		*s = samples{owner: owner}
	}
	ahead := time.Duration(at - now)
	last := &s.latest[(s.next+sampleCount-1)%sampleCount]
	if last.from > 0 && now < last.from+samplePause {
		last.ahead = max(last.ahead, ahead)
		return
	}
	s.latest[s.next] = sample{ahead, now}
	s.next = (s.next + 1) % sampleCount
}

// offset returns what the shard's time is ahead of the own clock when this node becomes its owner. It is never more than it was with the
// owner before, as far as one knows, and the shard's time is not less than that of its last entry. Without any sample it is the own
// clock's.
func (s *samples) offset(self uint64, now, last hook.Instant) time.Duration {
	atLeast := time.Duration(last - now)
	if s.owner == 0 {
		return max(0, atLeast)
	}
	for _, one := range s.latest {
		if one.from == 0 {
			continue
		}
		ahead := one.ahead
		if s.owner != self {
			ahead -= margin + time.Duration(now-one.from)/drift
		}
		atLeast = max(atLeast, ahead)
	}
	return atLeast
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
				r.samples.add(uint64(from), t.At, now)
			}
		})
	}
}
