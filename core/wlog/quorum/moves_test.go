package quorum

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
)

// appendAsync appends an entry on a goroutine.
func appendAsync(c *trio, l wlog.Log, n uint64) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := l.Append(c.Context(), binary.LittleEndian.AppendUint64(nil, n), wlog.Bringing)
		done <- err
	}()
	return done
}

// A transfer ends the owner's log, and no confirmed entry is lost.
func TestTransfer(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		l := c.open(0, 1)
		c.write(l, 1, 20)
		if err := c.nodes[1].Transfer(c.Context(), 0, 3); err != nil {
			t.Fatal(err)
		}
		if got := c.owner(0); got != 3 {
			t.Fatalf("owned by node %d", got)
		}
		<-l.Lost()
		if err := <-appendAsync(c, l, 21); !errors.Is(err, wlog.ErrLost) {
			t.Errorf("append after the transfer: %v", err)
		}
		n := uint64(0)
		if _, err := c.nodes[3].Open(c.Context(), 0, func(_ wlog.Index, entry []byte) error {
			n++
			if got := binary.LittleEndian.Uint64(entry); got != n {
				t.Errorf("entry %d where %d should be", got, n)
			}
			return nil
		}); err != nil || n != 20 {
			t.Errorf("%d entries, %v", n, err)
		}
		c.wantLost(1, ErrGiven)
	})
}

// The log called each transfer a lost majority, as if the network were broken, because the shard has no owner while another node stands for
// election. After a failed transfer, a node that is cut off must again give the lost majority as the reason.
func TestWhyAShardIsLost(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		c.isolate(3, true)
		if err := c.nodes[1].Transfer(c.Context(), 0, 3); !errors.Is(err, ErrBehind) {
			t.Fatalf("transfer: %v", err)
		}
		c.wantLost(1)
		c.isolate(2, true)
		time.Sleep(5 * time.Second)
		c.wantLost(1, ErrAlone)
	})
}

// An impossible transfer names the reason, and changes nothing.
func TestTransferIsRefused(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		l := c.open(0, 1)
		for name, tc := range map[string]struct {
			at, to wlog.NodeID
			shard  uint32
			want   error
		}{
			"unknown node":  {1, 9, 0, ErrUnknownNode},
			"not the owner": {2, 3, 0, wlog.ErrNotOwner},
			"no such shard": {1, 3, 77, wlog.ErrLost},
			"to itself":     {1, 1, 0, nil},
			"not answering": {1, 3, 0, ErrBehind},
		} {
			c.isolate(3, errors.Is(tc.want, ErrBehind))
			if errors.Is(tc.want, ErrBehind) {
				time.Sleep(3 * time.Second)
			}
			if err := c.nodes[tc.at].Transfer(c.Context(), tc.shard, tc.to); !errors.Is(err, tc.want) {
				t.Errorf("%s: %v, want %v", name, err, tc.want)
			} else if err != nil && strings.Contains(err.Error(), fmt.Sprint("node ", tc.to)) {
				t.Errorf("%s: %v: the node has a number there, which no operator knows", name, err)
			}
		}
		c.write(l, 1, 5)
	})
}

// During a transfer appends wait. If the transfer fails, they continue in the same log.
func TestAppendDuringAFailingTransfer(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		l := c.open(0, 1)
		c.write(l, 1, 5)
		time.Sleep(150 * time.Millisecond) // node 3 has answered lately
		c.isolate(3, true)
		failed := make(chan error, 1)
		go func() { failed <- c.nodes[1].Transfer(c.Context(), 0, 3) }()
		synctest.Wait()
		done := appendAsync(c, l, 6)
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("the append did not wait: %v", err)
		default:
		}
		if err := <-failed; !errors.Is(err, ErrBehind) {
			t.Errorf("transfer: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("append: %v", err)
		}
		c.write(l, 7, 9)
	})
}

// A node that shuts down gives its shards away, and gets none any more.
func TestLeave(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		c.owner(1)
		l := c.open(0, 1)
		c.write(l, 1, 20)
		ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
		defer cancel()
		if err := c.nodes[1].Leave(ctx); err != nil {
			t.Fatal(err)
		}
		for shard := range uint32(testShards) {
			if got := c.owner(shard); got == 1 {
				t.Errorf("it still owns shard %d", shard)
			}
		}
		owner := c.owner(0)
		if err := c.nodes[owner].Transfer(c.Context(), 0, 1); !errors.Is(err, ErrBehind) {
			t.Errorf("a transfer to it: %v", err)
		}
		c.isolate(2, true)
		c.isolate(3, true)
		ctx, cancel = context.WithTimeout(c.Context(), 3*time.Second)
		defer cancel()
		if err := c.nodes[1].Leave(ctx); err != nil {
			t.Errorf("it has nothing to leave: %v", err)
		}
	})
}

// Nodes that all shut down find out at once that no other node takes their shards, and appends are not held up. Each node used to wait for
// the whole time that it had, repeating election timeouts with nodes that had declined.
func TestAllLeave(t *testing.T) {
	inTrio(t, func(c *trio) {
		var logs []wlog.Log
		for shard := range uint32(testShards) {
			logs = append(logs, c.open(shard, c.owner(shard)))
		}
		time.Sleep(time.Second + 50*time.Millisecond) // between two ticks
		began := time.Now()
		ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
		defer cancel()
		left := make(chan error, len(c.nodes))
		for _, e := range c.nodes {
			go func() { left <- e.Leave(ctx) }()
		}
		for range c.nodes {
			if err := <-left; !errors.Is(err, ErrDeclined) {
				t.Errorf("leave: %v", err)
			}
		}
		for i, l := range logs {
			if err := <-appendAsync(c, l, uint64(i)); err != nil {
				t.Errorf("shard %d: %v", i, err)
			}
		}
		if d := time.Since(began); d > 100*time.Millisecond {
			t.Errorf("it took %v", d)
		}
		for _, e := range c.nodes {
			e.Stay()
		}
		time.Sleep(2 * time.Second)
		if err := c.nodes[c.owner(0)].Transfer(c.Context(), 0, c.owner(1)); err != nil {
			t.Errorf("a transfer later: %v", err)
		}
	})
}

// A node that is asked to take a shard over at the moment at which it leaves does not keep it.
func TestLeaveDuringATransfer(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		c.write(c.open(0, 1), 1, 20)
		for after := range 6 {
			time.Sleep(2 * time.Second)
			go func() { _ = c.nodes[1].Transfer(c.Context(), 0, 2) }() // it may be refused
			time.Sleep(time.Duration(after) * time.Millisecond)
			if err := c.nodes[2].Leave(c.Context()); err != nil {
				t.Fatal(err)
			}
			owner := c.owner(0)
			if owner == 2 || c.nodes[2].owners.of(0).Mine {
				t.Errorf("%d ms after the transfer began, the shard is with the node that has left", after)
			}
			c.nodes[2].Stay()
			time.Sleep(2 * time.Second)
			if owner != 1 {
				if err := c.nodes[owner].Transfer(c.Context(), 0, 1); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// If a node declines a shard or has ended, the owner gives the shard to another node at once.
func TestLeaveAsksTheNext(t *testing.T) {
	for name, away := range map[string]func(c *trio){
		"declined": func(c *trio) { c.nodes[3].leaving.Store(true) },
		"ended": func(c *trio) {
			c.kill(3)
			c.nodes[1].Gone(3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inTrio(t, func(c *trio) {
				c.owner(0)
				c.write(c.open(0, 1), 1, 20)
				away(c)
				time.Sleep(150 * time.Millisecond)
				began := time.Now()
				if err := c.nodes[1].Leave(c.Context()); err != nil || time.Since(began) > 200*time.Millisecond {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				if got := c.owner(0); got != 2 {
					t.Errorf("owned by node %d", got)
				}
			})
		})
	}
}

// A node that must own no shard votes for another node after the owner has fallen silent. It used to follow the silent owner for ever, so
// that two of three nodes had no owner.
func TestPassiveNodeVotes(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		c.write(c.open(0, 1), 1, 20)
		if err := c.nodes[2].Leave(c.Context()); err != nil {
			t.Fatal(err)
		}
		c.isolate(1, true)
		if got := c.owner(0, 1); got != 3 {
			t.Fatalf("owned by node %d", got)
		}
		c.write(c.open(0, 3), 21, 30)
		c.isolate(3, true)
		time.Sleep(3 * time.Second)
		if _, err := c.nodes[2].Barrier(c.Context(), 0); !errors.Is(err, wlog.ErrNoOwner) {
			t.Errorf("barrier without an owner: %v", err)
		}
	})
}

// A node that is alone cannot leave, and names the shards that it still owns.
func TestLeaveAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Options{
			Local: local(t, crashfs.New(1)), Node: 1, Voters: []wlog.NodeID{1}, Shards: 1, Election: time.Second,
			Clock: ownClock(), Send: func(wlog.NodeID, Message) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if err := e.StartAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Leave(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
