package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// A node whose disk is lost is replaced by a node with another number, under load.
func TestReplace(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		l := c.open(0, 1)
		c.write(l, 1, 100)
		c.kill(3)
		delete(c.fs, 3)
		fresh := c.boot(4)
		s := c.follow(4, 0)
		stop := make(chan struct{})
		var busy sync.WaitGroup
		busy.Go(func() {
			for n := uint64(101); ; n++ {
				select {
				case <-stop:
					return
				default:
					c.write(l, n, n)
				}
			}
		})
		for shard := range uint32(testShards) {
			if err := c.nodes[c.owner(shard)].Replace(c.Context(), shard, 3, 4); err != nil {
				t.Fatal(err)
			}
		}
		close(stop)
		busy.Wait()
		last := c.write(l, 1_000_000, 1_000_000)
		if at, err := fresh.Barrier(c.Context(), 0); err != nil || at != last {
			t.Errorf("barrier at %d, %v; want %d", at, err, last)
		}
		s.want(t, "1 to 1000000, begun 1 times")
		c.isolate(2, true) // from here on the new node's vote is needed
		c.write(l, 1_000_001, 1_000_010)
		if err := c.nodes[1].Replace(c.Context(), 0, 3, 4); err != nil {
			t.Errorf("it is done already: %v", err)
		}
		if st := c.nodes[1].Status()[0]; len(st.Voters) != 3 || st.Voters[2] != 4 {
			t.Errorf("voters %v", st.Voters)
		}
	})
}

// When a replacement is done, all nodes that answer know that. The simulator found that a node without that knowledge left the shard
// without an owner for ever when another disk was lost next: it needed the old nodes' votes, and the third node needed the vote of this
// node, which had more entries.
func TestReplaceIsKnownToAll(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		c.boot(4)
		time.Sleep(150 * time.Millisecond)
		if err := c.nodes[1].Replace(c.Context(), 0, 3, 4); err != nil {
			t.Fatal(err)
		}
		for _, id := range []wlog.NodeID{1, 2, 4} {
			var voters, outgoing []uint64
			r := c.nodes[id].running(0)
			if err := r.do(func() {
				conf := r.group.disk.configurationAt(r.group.applied)
				voters, outgoing = conf.GetVoters(), conf.GetVotersOutgoing()
			}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if !slices.Equal(voters, []uint64{1, 2, 4}) || len(outgoing) > 0 {
				t.Errorf("node %d knows voters %v and %v", id, voters, outgoing)
			}
		}
	})
}

// A replacement whose owner ends in the middle is continued by the next owner.
func TestReplaceIsTakenFurther(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		c.write(c.open(0, 1), 1, 100)
		c.kill(3)
		delete(c.fs, 3)
		ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
		defer cancel()
		if err := c.nodes[1].Replace(ctx, 0, 3, 4); !errors.Is(err, context.DeadlineExceeded) { // the new node is not there yet
			t.Errorf("got %v", err)
		}
		if err := c.nodes[1].Transfer(c.Context(), 0, 4); !errors.Is(err, ErrUnknownNode) { // it has no vote yet
			t.Errorf("a transfer to a learner: %v", err)
		}
		if err := c.nodes[1].Transfer(c.Context(), 0, 2); err != nil {
			t.Fatal(err)
		}
		c.boot(4)
		if err := c.nodes[2].Replace(c.Context(), 0, 3, 4); err != nil {
			t.Fatal(err)
		}
		st := c.nodes[2].Status()[0]
		if len(st.Voters) != 3 || st.Voters[2] != 4 || len(st.Peers) != 2 {
			t.Errorf("got %+v", st)
		}
	})
}

// A replacement that was given up leaves nothing behind once another one is done.
func TestReplaceByAnother(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		c.kill(3)
		delete(c.fs, 3)
		ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
		defer cancel()
		_ = c.nodes[1].Replace(ctx, 0, 3, 4) // node 4 never comes
		c.boot(5)
		if err := c.nodes[1].Replace(c.Context(), 0, 3, 5); err != nil {
			t.Fatal(err)
		}
		if st := c.nodes[1].Status()[0]; len(st.Peers) != 2 || st.Peers[1].Node != 5 || st.Peers[1].Learner {
			t.Errorf("peers %+v", st.Peers)
		}
	})
}

// An impossible replacement names the reason.
func TestReplaceIsRefused(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		for name, tc := range map[string]struct {
			at, old, by wlog.NodeID
			want        error
		}{
			"unknown node":  {1, 8, 9, ErrUnknownNode},
			"not the owner": {2, 3, 4, wlog.ErrNotOwner},
			"the owner":     {1, 1, 4, ErrOwner},
			"two voters":    {1, 2, 3, errHasVote},
		} {
			if err := c.nodes[tc.at].Replace(c.Context(), 0, tc.old, tc.by); !errors.Is(err, tc.want) {
				t.Errorf("%s: %v, want %v", name, err, tc.want)
			} else if strings.Contains(err.Error(), fmt.Sprint("node ", tc.old)) {
				t.Errorf("%s: %v: nodes have numbers there, which no operator knows", name, err)
			}
		}
		if err := c.nodes[1].Replace(c.Context(), 0, 2, 2); err == nil {
			t.Error("a node replaces itself")
		}
	})
}
