package cluster

import (
	"os"
	"testing"
)

// Nodes of an earlier program, which EARLIER names, are replaced by this one's, one after the other, under load and kills: while versions
// are mixed, each owns the vhost, is killed as its owner, takes over from the other, and is killed together with all. Then the way back, as
// long as the format of logs allows it: an operator may need it. make upgrade builds a commit, and runs this.
func TestMixedVersions(t *testing.T) {
	earlier := os.Getenv("EARLIER")
	if earlier == "" {
		t.Skip("EARLIER names no program of an earlier version: make upgrade FROM=COMMIT")
	}
	c := New(t, "", t.TempDir())
	urls := c.FixURLs()
	later := c.program
	for _, n := range c.Nodes {
		n.Program = earlier
	}
	c.StartAll()
	client := StartSurvivor(t, "survivor", nil, urls)
	AwaitProgress(t, client)
	for _, program := range []string{later, earlier} {
		for _, n := range c.Nodes {
			c.AwaitSpare()
			c.own(n) // so that it has something to hand over
			AwaitProgress(t, client)
			n.Stop()
			n.Program = program
			n.Launch()
			n.AwaitReady()
			AwaitProgress(t, client)
			for _, owner := range c.Nodes {
				c.AwaitSpare()
				c.own(owner)
				AwaitProgress(t, client)
				owner.Kill()
				AwaitProgress(t, client)
				owner.Launch()
				owner.AwaitReady()
			}
			for _, each := range c.Nodes {
				each.Kill()
			}
			c.StartAll()
			AwaitProgress(t, client)
		}
	}
	client.Stop()
	client.Finish()
	for _, n := range c.Nodes {
		n.Stop()
	}
	if c.Compare() == 0 {
		t.Error("no entries were compared")
	}
}
