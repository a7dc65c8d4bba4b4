package quorum

import (
	"testing"
	"time"
)

// The status describes owner, replicas and elections.
func TestStatus(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		l := c.open(0, 1)
		c.write(l, 1, 20)
		c.isolate(3, true)
		c.write(l, 21, 30)
		time.Sleep(2500 * time.Millisecond)
		st := c.nodes[1].Status()[0]
		if st.Role != Owner || st.Owner != 1 || st.Elections != 1 || st.Commit != st.Last || st.Applied != st.Last || st.Commits.Count != 30 || st.Bytes == 0 {
			t.Errorf("got %+v", st)
		}
		if len(st.Peers) != 2 || st.Peers[0].Lag != 0 || !st.Peers[0].Active || st.Peers[1].Lag < 10 || st.Peers[1].Active {
			t.Errorf("peers %+v", st.Peers)
		}
		if st := c.nodes[2].Status()[0]; st.Role != Follower || st.Owner != 1 || len(st.Peers) != 0 || len(st.Voters) != 3 {
			t.Errorf("got %+v", st)
		}
		if st := c.nodes[3].Status()[0]; st.Role != Candidate || st.Owner != 0 {
			t.Errorf("got %+v", st)
		}
		if err := c.nodes[3].Stop(0); err != nil {
			t.Fatal(err)
		}
		if st := c.nodes[3].Status()[0]; st.Role != Stopped || st.Err != nil {
			t.Errorf("got %+v", st)
		}
	})
}

// Nodes that answer all the time were shown as silent for two tenths of each second. A look every two seconds found them so each time: shards
// were never handed back to a node that was started again.
func TestPeersThatAnswerAreActiveAtAnyTime(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		c.write(c.open(0, 1), 1, 20)
		time.Sleep(2 * time.Second)
		for range 200 {
			time.Sleep(17 * time.Millisecond)
			for _, p := range c.nodes[1].Status()[0].Peers {
				if !p.Active {
					t.Fatalf("node %d is not active, at %v", p.Node, time.Now())
				}
			}
		}
		c.isolate(3, true)
		time.Sleep(1500 * time.Millisecond)
		if ps := c.nodes[1].Status()[0].Peers; !ps[0].Active || ps[1].Active {
			t.Errorf("node 3 is cut off: %+v", ps)
		}
	})
}
