package quorum

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
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

// A transfer ends the owner's log, and nothing that it has confirmed is lost.
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
	})
}

// A transfer that cannot be done says why, and changes nothing.
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
			}
		}
		c.write(l, 1, 5)
	})
}

// While a transfer goes on, appends wait; if it fails, they go on in the same log.
func TestAppendDuringAFailingTransfer(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		l := c.open(0, 1)
		c.write(l, 1, 5)
		time.Sleep(150 * time.Millisecond) // it was heard lately
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

// A node that is about to end gives away what it owns, and does not get anything any more.
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

// All nodes that end at the same time find out at once that nobody takes their shards, and what was being appended is not held up. Each
// waited for all of its time: for the election timeout, again and again, for nodes that did not want to.
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

// A node that is told to take a shard over in the moment in which it leaves does not keep it.
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

// An owner gives a shard away at once if a node declines it, or has ended.
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

// A node that wants to own nothing votes for another when the owner is not heard any more. It did not: it believed in the owner for ever,
// so that two nodes of three had no owner.
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

// Alone, a node cannot leave, and says which shards it still owns.
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

// An owner whose disk does not answer gives its shards away.
func TestStalledDisk(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		l := c.open(0, 1)
		c.write(l, 1, 20)
		time.Sleep(time.Second) // nothing is being written: what follows is the first to wait
		var stalled sync.Mutex
		slow := make(chan struct{})
		c.fs[1].Inject(func(op crashfs.Op) error {
			if op.Kind == crashfs.OpSync {
				stalled.Lock()
				defer stalled.Unlock()
				<-slow
			}
			return nil
		})
		began := time.Now()
		done := appendAsync(c, l, 21)
		if err := <-done; !errors.Is(err, wlog.ErrLost) {
			t.Errorf("append: %v", err)
		}
		if d := time.Since(began); d < 5*time.Second || d > 8*time.Second {
			t.Errorf("it gave the shard away after %v", d)
		}
		if got := c.owner(0); got == 1 {
			t.Error("it owns the shard again")
		}
		c.write(c.open(0, c.owner(0)), 22, 30)
		time.Sleep(20 * time.Second)
		if got := c.owner(0); got == 1 {
			t.Error("it owns the shard again")
		}
		close(slow)
	})
}

// An append that waits for space, because the disk does not answer, does not keep the owner from giving the shard away, nor its user from
// closing the log.
func TestStalledDiskWhileSpaceIsMade(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		l := c.open(0, 1)
		c.write(l, 1, 20)
		time.Sleep(time.Second)
		slow := make(chan struct{})
		c.fs[1].Inject(func(op crashfs.Op) error {
			<-slow // whatever it is: the next segment cannot be made either
			return nil
		})
		large := make([]byte, 1<<20) // has no place in the segment
		done := make(chan error, 1)
		began := time.Now()
		go func() {
			for {
				if _, err := l.Append(t.Context(), large, wlog.Bringing); err != nil {
					done <- err
					return
				}
			}
		}()
		if err := <-done; !errors.Is(err, wlog.ErrLost) {
			t.Errorf("append: %v", err)
		}
		if d := time.Since(began); d < 5*time.Second || d > 8*time.Second {
			t.Errorf("it gave the shard away after %v", d)
		}
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if got := c.owner(0); got == 1 {
			t.Error("it owns the shard again")
		}
		close(slow)
	})
}

// An engine ends although its disk does not answer, and says so.
func TestCloseOfAStalledDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys, slow := crashfs.New(1), make(chan struct{})
		e, err := New(Options{
			Local: local(t, fsys), Node: 1, Voters: []wlog.NodeID{1}, Shards: 1, Election: time.Second, Clock: ownClock(),
			Send: func(wlog.NodeID, Message) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		l, err := e.Open(t.Context(), 0, func(wlog.Index, []byte) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		fsys.Inject(func(op crashfs.Op) error {
			if op.Kind == crashfs.OpSync {
				<-slow
			}
			return nil
		})
		appended := make(chan error, 1)
		go func() {
			_, err := l.Append(t.Context(), []byte("x"), wlog.Bringing)
			appended <- err
		}()
		time.Sleep(time.Minute) // nobody else can own the shard
		began := time.Now()
		if err := e.Close(); !errors.Is(err, errStuck) {
			t.Errorf("close: %v", err)
		}
		if d := time.Since(began); d > 6*time.Second {
			t.Errorf("it took %v", d)
		}
		if err := <-appended; !errors.Is(err, wlog.ErrLost) {
			t.Errorf("append: %v", err)
		}
		close(slow)
		synctest.Wait()
		if err := e.options.Local.Close(); err != nil {
			t.Errorf("the disk answers again: %v", err)
		}
	})
}

// A replica whose disk fails ends, says so, and has another node take over at once. The node's other shards go on.
func TestFailedDisk(t *testing.T) {
	for name, kind := range map[string]crashfs.OpKind{"write": crashfs.OpWrite, "sync": crashfs.OpSync} {
		t.Run(name, func(t *testing.T) {
			inTrio(t, func(c *trio) {
				c.owner(0)
				l := c.open(0, 1)
				c.write(l, 1, 20)
				time.Sleep(150 * time.Millisecond) // the others have all of it, and have said so
				var failed bool
				c.fs[1].Inject(func(op crashfs.Op) error {
					if op.Kind == kind && !failed {
						failed = true
						return errors.New("input/output error")
					}
					return nil
				})
				began := time.Now()
				if err := <-appendAsync(c, l, 21); !errors.Is(err, wlog.ErrLost) {
					t.Errorf("append: %v", err)
				}
				owner := c.owner(0, 1)
				if d := time.Since(began); d > 600*time.Millisecond {
					t.Errorf("another owns it after %v", d)
				}
				c.write(c.open(0, owner), 22, 30)
				st := c.nodes[1].Status()
				if st[0].Role != Stopped || st[0].Err == nil || st[1].Role == Stopped || st[2].Role == Stopped {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

// A node whose disk is lost is replaced by one with another number, under load.
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

// When a replacement is done, all nodes that answer know that. The simulator found that one which did not left the shard without an owner for
// ever when another disk was lost next: it needed the old nodes' votes, and the third node needed that of this one, which had more entries.
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

// A replacement whose owner ends in the middle is taken further by the next one.
func TestReplaceIsTakenFurther(t *testing.T) {
	inTrio(t, func(c *trio) {
		c.owner(0)
		c.write(c.open(0, 1), 1, 100)
		c.kill(3)
		delete(c.fs, 3)
		ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
		defer cancel()
		if err := c.nodes[1].Replace(ctx, 0, 3, 4); !errors.Is(err, context.DeadlineExceeded) { // nobody is there yet
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
		_ = c.nodes[1].Replace(ctx, 0, 3, 4) // it never comes
		c.boot(5)
		if err := c.nodes[1].Replace(c.Context(), 0, 3, 5); err != nil {
			t.Fatal(err)
		}
		if st := c.nodes[1].Status()[0]; len(st.Peers) != 2 || st.Peers[1].Node != 5 || st.Peers[1].Learner {
			t.Errorf("peers %+v", st.Peers)
		}
	})
}

// A replacement that cannot be done says why.
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
			}
		}
		if err := c.nodes[1].Replace(c.Context(), 0, 2, 2); err == nil {
			t.Error("a node replaces itself")
		}
	})
}

// The status says what is going on.
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
