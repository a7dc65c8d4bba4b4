package cluster

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
)

// After rolling restarts three of four shards stayed on one node, for good. One that clients use stays until an operator moves it.
func TestShardsAreSpreadAfterRollingRestarts(t *testing.T) {
	t.Parallel()
	c := Start(t, "")
	for _, n := range c.Nodes {
		n.Stop()
		n.Launch()
		n.AwaitReady()
		c.AwaitSpare()
	}
	used := c.Owner("/")
	ch := open(t, used)
	away := c.displaced()
	if !process.Poll(func() bool {
		return !slices.ContainsFunc(c.displaced(), func(s shard) bool { return !slices.Contains(s.VHosts, "/") })
	}) {
		t.Fatalf("shards are not at their nodes: %v, after %v", c.displaced(), away)
	}
	if err := ch.Close(); err != nil {
		t.Error(err)
	}
	if now := c.Owner("/"); now != used {
		t.Errorf("node %d was taken a shard that a client uses, which node %d has now", used.Number, now.Number)
	}
	if err := c.Ctl(c.Nodes[0], "cluster", "rebalance"); err != nil {
		t.Error(err)
	}
	if !process.Poll(func() bool { return len(c.displaced()) == 0 }) {
		t.Errorf("shards are not at their nodes: %v", c.displaced())
	}
}

// shard is a shard as the management API shows it.
type shard struct {
	Shard            int
	Owner, Preferred string
	VHosts           []string
}

// displaced returns the shards that another node owns than the one that they are meant for.
func (c *Cluster) displaced() []shard {
	var all struct{ Shards []shard }
	if err := json.Unmarshal(c.Nodes[0].Get("cluster"), &all); err != nil {
		c.t.Fatal(err)
	}
	if len(all.Shards) == 0 {
		c.t.Fatal("there are no shards")
	}
	return slices.DeleteFunc(all.Shards, func(s shard) bool { return s.Owner == s.Preferred })
}
