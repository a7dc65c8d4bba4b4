package quorum

import (
	"slices"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// settle ends all faults, and waits until the nodes agree.
func (c *cluster) settle() {
	clear(c.cut)
	c.barOne()
	c.now += hook.Instant(time.Minute)
	for _, id := range c.ids() {
		n := c.nodes[id]
		c.asleep(n)
		if n.gone {
			continue
		}
		if !n.small {
			n.fs.SetSpace(1 << 40)
		} else if n.g != nil {
			n.fs.Inject(nil)
			c.others(n, 0)
		}
		n.fs.Inject(nil)
		if n.up && n.failed {
			c.crash(n)
		}
		if !n.up {
			c.boot(n, c.voters(n))
		}
	}
	for round := 0; c.joins != nil || !c.agreed(); round++ {
		if round > 300 && c.twoSmall() {
			c.counts["not agreed"]++
			return
		}
		if round > 2000 {
			c.fail("the nodes do not agree")
		}
		c.join()
		c.trimAll()
		c.round(func(flight) bool { return true })
	}
}

// trimAll makes an owner state that no entry is needed, unless it has stated that. Small disks then get space.
func (c *cluster) trimAll() {
	n := c.owner()
	if n == nil || !slices.ContainsFunc(c.members(), func(n *simNode) bool { return n.small }) {
		return
	}
	if before := n.g.applied; before > max(n.g.head.trim, n.g.told)+1 {
		n.g.told = before
		c.said = max(c.said, before)
		n.g.proposeTrim(before)
		c.after(n)
	}
}

// round counts a tick of every node, and delivers the messages that heard admits.
func (c *cluster) round(heard func(flight) bool) {
	for _, id := range c.ids() {
		if n := c.nodes[id]; n.up {
			c.tick(n)
			c.writeAll(n)
		}
	}
	for sent := 0; len(c.net) > 0; sent++ {
		if sent > 100_000 {
			c.fail("the nodes send each other messages for ever")
		}
		f := c.net[0]
		c.net = c.net[1:]
		to := c.nodes[f.m.GetTo()]
		arrives := to != nil && to.up && heard(f)
		if c.report(f, arrives); arrives {
			c.hand(to, f)
			c.after(to)
			c.writeAll(to)
		}
	}
}

func (c *cluster) close() {
	for _, n := range c.nodes {
		if n.up {
			_ = n.eng.Close()
		}
	}
}

func (c *cluster) writeAll(n *simNode) {
	for tries := 0; n.writing != nil || len(n.g.writes) > 0; tries++ {
		if c.write(n); n.failed {
			c.crash(n)
			c.boot(n, c.voters(n))
		}
		if n.g.full && n.fs != nil && tries > 50 {
			return
		}
		if tries > 10_000 {
			c.fail("node %d cannot write", n.id)
		}
	}
}

// members returns the voters and learners that the owner knows.
func (c *cluster) members() (all []*simNode) {
	n := c.owner()
	if n == nil {
		return nil
	}
	conf := n.g.disk.configurationAt(n.g.applied)
	for _, id := range slices.Concat(conf.GetVoters(), conf.GetLearners()) {
		if x := c.nodes[id]; !x.gone {
			all = append(all, x)
		}
	}
	return all
}

func (c *cluster) agreed() bool {
	all := c.members()
	if len(all) < 2 || c.owner().barred {
		return false
	}
	commit := uint64(0)
	for _, n := range all {
		commit = max(commit, n.g.node.BasicStatus().HardState.GetCommit())
	}
	for _, n := range all {
		if n.g.applied != commit || n.g.disk.last().index != commit {
			return false
		}
	}
	return true
}
