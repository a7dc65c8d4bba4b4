package quorum

import (
	"slices"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// someSkew returns how far a clock is ahead.
func (c *cluster) someSkew() hook.Instant { return hook.Instant(c.rng.Int64N(int64(10 * time.Second))) }

// ping sends the shard's time to the other nodes, if the node owns the shard.
func (c *cluster) ping(n *simNode) {
	if n.g.owner == 0 || n.g.owner != n.owned {
		return
	}
	at := c.now + n.skew + hook.Instant(n.offset)
	c.now += hook.Instant(c.rng.Int64N(int64(20 * time.Millisecond)))
	for _, id := range c.ids() {
		if other := c.nodes[id]; other.up && other.g.leader == n.id && id != n.id {
			other.samples.hear(other.g.term, at, c.now+other.skew)
		}
	}
}

// remember makes a node write its knowledge of the shard's time, as a replica does.
func (c *cluster) remember(n *simNode, refresh bool) {
	if refresh || n.samples.term > n.g.time.term {
		n.g.time = n.samples.keep(n.g.time, c.now+n.skew, 0)
	}
}

// electors returns the nodes that may have elected an owner, including the owner.
func (c *cluster) electors(n *simNode) (all []*simNode) {
	for _, id := range c.ids() {
		v := c.nodes[id]
		if h := v.g.noted.hard; h.term > n.owned || h.term == n.owned && h.vote == n.id {
			all = append(all, v)
		}
	}
	return all
}

// misled reports whether an owner lacks the entries that state the time, and an elector whose clock was set claims a wrong one.
func (c *cluster) misled(n *simNode) bool {
	return n.g.disk.trimmed() > n.samples.term && slices.ContainsFunc(c.electors(n), func(v *simNode) bool {
		return v.samples.former && v.g.disk.time == v.void
	})
}

// takeOver makes a new owner continue the shard's time, and checks that this is not ahead of any earlier owner's. It may be ahead in two
// cases: the owner's log has no entry with a time, or all knowledge of the time is from an earlier life and a clock was set since.
func (c *cluster) takeOver(n *simNode) {
	last := n.g.head.at
	own := c.now + n.skew
	n.owned = n.g.owner
	mayDiffer := n.samples.term == 0 && n.g.body == 0 || n.samples.known && n.g.disk.time == n.void || c.misled(n)
	n.offset = n.samples.offset(own, last, n.g.disk.trimmed())
	if c.fault == usesOwnClock {
		n.offset = max(0, time.Duration(last-own))
	}
	n.samples.own(n.g.owner, n.offset)
	if own+hook.Instant(n.offset) < last {
		c.fail("node %d goes on at %v, and the last entry is of %v", n.id, own+hook.Instant(n.offset), last)
	}
	ahead := time.Duration(n.skew) + n.offset
	c.checkLate(n, ahead)
	c.aheads[n.owned] = ahead
	for term, was := range c.aheads {
		switch {
		case term >= n.owned || ahead <= was:
		case mayDiffer:
			c.counts["times that differ"]++
			c.aheads[term] = ahead
		case c.timed[term]:
			c.fail("node %d is ahead of the shard's time in term %d by %v", n.id, term, ahead-was)
		}
	}
}

// delay is how long an entry took until it was committed. By then a majority had the entry, and so knew its owner's time up to that delay.
type delay struct {
	index uint64
	from  hook.Instant // when the entry was proposed
	took  time.Duration
}

func (c *cluster) noteDelay(p position, at hook.Instant) {
	if ahead, known := c.aheads[p.term]; known {
		from := at - hook.Instant(ahead)
		c.delays[p.term] = append(c.delays[p.term], delay{p.index, from, time.Duration(c.now - from)})
	}
}

// checkLate checks that an owner is not later than the owner before by more than it cannot know: by how long an entry of that owner took to
// be committed, and by the duration of its own election. This holds only for entries after the last start of any elector.
func (c *cluster) checkLate(n *simNode, ahead time.Duration) {
	before, booted := uint64(0), hook.Instant(0)
	for term := range c.aheads {
		if term < n.owned {
			before = max(before, term)
		}
	}
	for _, v := range c.electors(n) {
		booted = max(booted, v.booted)
	}
	late := c.aheads[before] - ahead
	for _, d := range c.delays[before] {
		if d.from <= booted || d.index <= n.g.changing {
			continue
		}
		c.counts["times that may not be late"]++
		if may := d.took + time.Duration(c.now-c.began[n.owned]) + 2*margin + time.Duration(c.now-d.from)/drift; late > may {
			c.fail("node %d is behind the time of term %d by %v, and may be by %v", n.id, before, late, may)
		}
	}
}
