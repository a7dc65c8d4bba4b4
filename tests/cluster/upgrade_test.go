package cluster

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
)

// Three nodes of one version are replaced by another, one after the other, under load: each hands over what it owns, clients go on, and
// nothing that was confirmed is lost. A format of logs that only the later version reads is written when all nodes have that version, not
// before. Afterwards the earlier version is refused, on its data and without.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	later := process.Variant(t, "later", map[string]string{"release": "8.0.0", "latestFormat": "2"})
	c := New(t, "", t.TempDir())
	urls := c.FixURLs()
	c.StartAll()
	earlier, version := c.program, c.Nodes[0].Await("ready")["version"].(string)
	client := StartSurvivor(t, "survivor", nil, urls)
	AwaitProgress(t, client)
	reads := []int{1, 1, 1}
	for i, n := range c.Nodes {
		c.awaitFormats(1, reads)
		c.AwaitSpare()
		c.own(n) // so that each has something to hand over
		AwaitProgress(t, client)
		n.Stop()
		if n.Logged("this node could not hand over all its shards: the other nodes elect new owners when it has ended") {
			t.Errorf("node %d has handed over nothing", n.Number)
		}
		AwaitProgress(t, client)
		n.Program = later
		n.Launch()
		n.AwaitReady()
		reads[i] = 2
	}
	c.awaitFormats(2, reads)
	AwaitProgress(t, client)
	client.Stop()
	client.Finish()

	back := c.Nodes[2]
	back.Stop()
	back.Program = earlier
	back.Launch()
	if status := back.Exit(); status == 0 {
		t.Error("an earlier version has ended without an error")
	}
	back.Excuse("the broker cannot start")
	want := "the cluster of this data folder writes logs of format 2, and version " + version + " reads up to 1"
	if said, _ := back.Await("the broker cannot start")["error"].(string); !strings.Contains(said, want) {
		t.Errorf("an earlier version says %q, without %q", said, want)
	}
	back.Empty()
	back.Launch()
	defer back.Kill() // it waits to be let in
	want = "it reads logs of format 1, and this cluster writes format 2: start version 8.0.0 or a later one there"
	if !process.Poll(func() bool {
		got, _ := c.Nodes[0].Await("stream of a node refused")["error"].(string) // the last one
		return strings.Contains(got, want)
	}) {
		t.Errorf("an earlier version without data is not refused with %q", want)
	}
}

// own has a node own the vhost "/".
func (c *Cluster) own(n *Node) {
	c.t.Helper()
	c.give("/", n)
}

// give has a node own a vhost.
func (c *Cluster) give(vhost string, n *Node) {
	c.t.Helper()
	c.Nodes[0].Ask(c.t, http.StatusNoContent, http.MethodPost, "cluster/transfer", map[string]string{"vhost": vhost, "to": n.Address})
	if !process.Poll(func() bool { return c.owner(vhost) == n }) {
		c.t.Fatalf("node %d does not own the vhost %s", n.Number, vhost)
	}
}

// awaitFormats waits until all nodes say which format of logs the cluster writes, and which each of them reads.
func (c *Cluster) awaitFormats(writes int, reads []int) {
	c.t.Helper()
	var got []byte
	if !process.Poll(func() bool {
		for _, n := range c.Nodes {
			var said struct {
				Format int `json:"log_format"`
				Nodes  []struct {
					Address string
					Format  int `json:"log_format"`
				}
			}
			got = n.Get("cluster")
			if json.Unmarshal(got, &said) != nil || said.Format != writes || len(said.Nodes) != size {
				return false
			}
			for _, one := range said.Nodes {
				for i, other := range c.Nodes {
					if one.Address == other.Address && one.Format != reads[i] {
						return false
					}
				}
			}
		}
		return true
	}) {
		c.t.Fatalf("the cluster does not write format %d while nodes read up to %v: %s", writes, reads, got)
	}
}
