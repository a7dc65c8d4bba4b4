package quorum

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/sdk/hook"
)

// foundByOne begins a simulated cluster with the data of one node, which the other nodes join.
func (c *cluster) foundByOne() {
	founder := c.add()
	eng, err := seg.New(founder.fs, seg.Options{SegmentSize: 16 << 10, Clock: func() hook.Instant { return 1 }})
	if err != nil {
		c.fail("founding: %v", err)
	}
	f, err := Found(context.Background(), eng, 1, wlog.NodeID(founder.id))
	if err != nil {
		c.fail("founding: %v", err)
	}
	for range c.rng.IntN(30) {
		c.next++
		body := make([]byte, 8+c.rng.IntN(600))
		binary.LittleEndian.PutUint64(body, c.next)
		if err := f.Append(context.Background(), c.now, body); err != nil {
			c.fail("founding: %v", err)
		}
		c.acked[c.next], c.durable = f.last.index, f.last.index
	}
	if err := errors.Join(f.Finish(context.Background()), eng.Close()); err != nil {
		c.fail("founding: %v", err)
	}
	synctest.Wait()
	c.joins = &joining{nodes: []uint64{2, 3}}
	c.boot(founder, nil)
	c.boot(c.add(), nil)
	c.boot(c.add(), nil)
	c.counts["founded"]++
}

// join makes the owner continue the joining.
func (c *cluster) join() {
	n := c.owner()
	if n == nil || c.joins == nil {
		return
	}
	if c.joinsBy != n.g.owner { // each owner continues from the configuration
		c.joins, c.joinsBy = &joining{nodes: c.joins.nodes}, n.g.owner
	}
	done, _ := c.joins.step(n.g, c.rng.IntN(2) == 0)
	c.after(n)
	if done {
		c.joins = nil
		c.counts["joined"]++
	}
}

// found writes numbered entries into the logs of a node before its first start.
func (c *trio) found(id wlog.NodeID, upTo uint64, at hook.Instant) {
	c.Helper()
	c.fs[id] = crashfs.New(uint64(id))
	eng := local(c.T, c.fs[id])
	for shard := range uint32(testShards) {
		f, err := Found(c.Context(), eng, shard, id)
		if err != nil {
			c.Fatal(err)
		}
		for n := uint64(1); n <= upTo; n++ {
			if err := f.Append(c.Context(), at, binary.LittleEndian.AppendUint64(nil, n)); err != nil {
				c.Fatal(err)
			}
		}
		if err := f.Finish(c.Context()); err != nil {
			c.Fatal(err)
		}
	}
	if err := eng.Close(); err != nil {
		c.Fatal(err)
	}
}

// numbers opens a shard, and returns the numbers in it.
func (c *trio) numbers(shard uint32, id wlog.NodeID) (all []uint64, l wlog.Log) {
	c.Helper()
	log, err := c.nodes[id].Open(c.Context(), shard, func(_ wlog.Index, entry []byte) error {
		all = append(all, binary.LittleEndian.Uint64(entry))
		return nil
	})
	if err != nil {
		c.Fatal(err)
	}
	return all, log
}

func wantNumbers(t *testing.T, got []uint64, upTo uint64) {
	t.Helper()
	for i, n := range got {
		if n != uint64(i)+1 {
			t.Fatalf("entry %d where %d should be", n, i+1)
		}
	}
	if uint64(len(got)) != upTo {
		t.Errorf("%d entries of %d", len(got), upTo)
	}
}

// One node founds a cluster with its data. It serves alone; once the others have joined, any one of them can fail.
func TestFoundAndJoin(t *testing.T) {
	inNoTrio(t, func(c *trio) {
		ahead := hook.Instant(time.Now().UnixNano()) + hook.Instant(time.Hour)
		c.found(1, 50, ahead)
		c.boot(1)
		got, l := c.numbers(0, 1)
		wantNumbers(t, got, 50)
		if now := ownClock()() + hook.Instant(c.step[1]+l.Offset()); now < ahead {
			t.Errorf("the shard's time goes back by %v", ahead.Sub(now))
		}
		c.write(l, 51, 60)
		c.boot(2)
		c.boot(3)
		for shard := range uint32(testShards) {
			for range 2 { // the second call has nothing to do
				if err := c.nodes[1].Join(c.Context(), shard, 2, 3); err != nil {
					t.Fatal(err)
				}
			}
		}
		if voters := c.nodes[1].Status()[0].Voters; len(voters) != 3 {
			t.Errorf("the voters are %v", voters)
		}
		c.write(l, 61, 70)
		c.kill(1)
		c.nodes[2].Gone(1)
		c.nodes[3].Gone(1)
		got, l = c.numbers(0, c.owner(0))
		wantNumbers(t, got, 70)
		c.write(l, 71, 80)
	})
}

// A node that has not joined yet never owns the shard. A node that does not answer does not stop the others.
func TestJoinWaitsForAll(t *testing.T) {
	inNoTrio(t, func(c *trio) {
		c.found(1, 5, 0)
		c.boot(1)
		c.boot(2)
		_, l := c.numbers(0, 1)
		ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
		defer cancel()
		if err := c.nodes[1].Join(ctx, 0, 2, 3); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("joined without node 3: %v", err)
		}
		c.write(l, 6, 10)
		c.isolate(1, true)
		time.Sleep(10 * time.Second)
		if o := c.nodes[2].owners.of(0); o.Mine {
			t.Error("a node without a vote owns the shard")
		}
		c.isolate(1, false)
		c.write(l, 11, 12)
		c.boot(3)
		if err := c.nodes[1].Join(c.Context(), 0, 2, 3); err != nil {
			t.Fatal(err)
		}
	})
}

// inCopies runs a test with the copy of a node of a trio in which another node was replaced.
func inCopies(t *testing.T, of wlog.NodeID, test func(c *trio, from Entries)) {
	t.Helper()
	inTrio(t, func(c *trio) {
		l := c.open(0, c.owner(0))
		c.write(l, 1, 30)
		c.kill(3)
		c.boot(4)
		if err := c.nodes[c.owner(0)].Replace(c.Context(), 0, 3, 4); err != nil {
			t.Fatal(err)
		}
		c.write(l, 31, 40)
		time.Sleep(time.Second)
		fs := c.fs[of].Kill()
		for _, id := range []wlog.NodeID{1, 2, 4} {
			c.kill(id)
		}
		test(c, func(fn func(at wlog.Index, entry []byte) error) error {
			eng := local(c.T, fs)
			_, err := eng.Open(c.Context(), 0, fn)
			return errors.Join(err, eng.Close())
		})
	})
}

// A new cluster can be founded with the copy of any node: it has the copy's entries, and the former nodes have no vote.
func TestRefound(t *testing.T) {
	for _, of := range []wlog.NodeID{1, 2, 4} {
		inCopies(t, of, func(c *trio, from Entries) {
			fs := crashfs.New(9)
			eng := local(c.T, fs)
			seen := uint64(0)
			f, err := Refound(c.Context(), from, of, eng, 0, 9, func(wlog.Index, []byte) error { seen++; return nil })
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Append(c.Context(), 0, binary.LittleEndian.AppendUint64(nil, 41)); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(f.Finish(c.Context()), eng.Close()); err != nil {
				t.Fatal(err)
			}
			if seen != 40 {
				t.Errorf("%d entries were seen", seen)
			}
			c.fs[9] = fs
			c.boot(9)
			got, l := c.numbers(0, 9)
			wantNumbers(t, got, 41)
			c.write(l, 42, 45)
		})
	}
}

// An incomplete copy is refused.
func TestRefoundRefuses(t *testing.T) {
	inCopies(t, 1, func(c *trio, from Entries) {
		empty := func(func(at wlog.Index, entry []byte) error) error { return nil }
		broken := func(fn func(at wlog.Index, entry []byte) error) error { return fn(1, []byte{99}) }
		headless := func(fn func(at wlog.Index, entry []byte) error) error {
			return fn(1, appendEntry(nil, entry(9, 5, "a header of a body, and a body")))
		}
		behind := func(trim uint64) Entries {
			b := appendBeginning(nil, recAnew, position{50, 3}, &raftpb.ConfState{Voters: []uint64{1}})
			e := entry(51, 3, string(binary.LittleEndian.AppendUint64(nil, trim))+"and the time.")
			return func(fn func(at wlog.Index, entry []byte) error) error { return fn(1, appendEntry(b, e)) }
		}
		if _, err := Refound(c.Context(), behind(51), 1, local(c.T, crashfs.New(9)), 0, 9, func(wlog.Index, []byte) error { return nil }); err != nil {
			t.Errorf("a whole copy: %v", err)
		}
		for name, tc := range map[string]struct {
			from Entries
			of   wlog.NodeID
			want string
		}{
			"a part":                {behind(50), 1, ErrIncomplete.Error()},
			"of another node":       {from, 3, ErrNoVote.Error()},
			"of nobody":             {from, 77, ErrNoVote.Error()},
			"nothing":               {empty, 1, ErrNothing.Error()},
			"what no replica wrote": {broken, 1, "not a record of a replica"},
			"no beginning":          {headless, 1, "it has no beginning"},
		} {
			eng := local(c.T, crashfs.New(9))
			_, err := Refound(c.Context(), tc.from, tc.of, eng, 0, 9, func(wlog.Index, []byte) error { return nil })
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %s", name, err, tc.want)
			}
			if err := eng.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A log is founded once.
func TestFoundTwice(t *testing.T) {
	inNoTrio(t, func(c *trio) {
		c.found(1, 5, 0)
		eng := local(c.T, c.fs[1])
		if _, err := Found(c.Context(), eng, 0, 1); !errors.Is(err, errFounded) {
			t.Errorf("got %v", err)
		}
		f, err := Found(c.Context(), eng, 9, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Append(c.Context(), 0, make([]byte, MaxEntry+1)); !errors.Is(err, wlog.ErrTooLarge) {
			t.Errorf("got %v", err)
		}
		if err := errors.Join(f.Finish(c.Context()), eng.Close()); err != nil {
			t.Fatal(err)
		}
	})
}
