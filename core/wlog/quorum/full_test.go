package quorum

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
)

// A node whose disk was full to the last byte has space again when the owner needs no entry of the log any more. It used to stay behind
// until a restart: it repeated the write that did not fit, and everything that would have freed its disk came behind that.
func TestCampaignDiskFullToTheLastByteIsFreed(t *testing.T) {
	spaces := []int64{100_000, 131_072, 150_000, 200_001, 300_000, 413_000}
	n := campaign.Size(t, "SIMULATION_SEEDS", 0, 3)
	for _, space := range spaces[:min(n, uint64(len(spaces)))] {
		for _, size := range []int{100, 3_000, 20_000, 50_000} {
			t.Run(fmt.Sprintf("%d bytes, of %d each", space, size), func(t *testing.T) {
				inTrio(t, func(c *trio) {
					c.owner(1)
					l := c.open(1, c.owner(1))
					full := wlog.NodeID(2)
					if c.owner(1) == full {
						full = 3
					}
					c.fs[full].SetSpace(space)
					var at wlog.Index
					for sent := 0; sent < 1<<20; sent += size {
						at = c.append(l, size)
					}
					time.Sleep(5 * time.Second)
					if last := c.last(1, full); last >= uint64(at) {
						t.Fatalf("node %d has all %d entries: its disk is not full", full, last)
					}
					if err := l.Trim(at + 1); err != nil {
						t.Fatal(err)
					}
					time.Sleep(10 * time.Second)
					if last := c.last(1, full); last < uint64(at) {
						t.Errorf("node %d has the entries through %d, of %d", full, last, at)
					}
					c.append(l, size)
				})
			})
		}
	}
}

// The same node, when the owner has trimmed entries that the node lacks: the new beginning of the log overtakes the write that does not
// fit.
func TestDiskFullToTheLastByteIsFreedByABeginning(t *testing.T) {
	inTrio(t, func(c *trio) {
		l, full, _ := c.fill(1, 20_000)
		c.isolate(full, true)
		at := c.append(l, 20_000)
		if err := l.Trim(at + 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		c.isolate(full, false)
		at = c.append(l, 100)
		time.Sleep(20 * time.Second)
		if last := c.last(1, full); last < uint64(at) {
			t.Errorf("node %d has the entries through %d, of %d", full, last, at)
		}
	})
}

// An owner with space on its own disk refuses Bringing entries before the other disks are full: otherwise no message could be acknowledged,
// because entries that free space could not be confirmed either.
func TestMajorityWithoutSpace(t *testing.T) {
	for _, size := range []int{100, 700, 1_900} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			inTrio(t, func(c *trio) {
				owner := c.owner(1)
				l := c.open(1, owner)
				others := []wlog.NodeID{owner%3 + 1, (owner+1)%3 + 1}
				c.fs[others[0]].SetSpace(600_000)
				c.fs[others[1]].SetSpace(700_000)
				at := c.bringWhile(l, size)
				for range 100 {
					var err error
					if at, err = l.Append(c.Context(), make([]byte, 300), wlog.Settling); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Second)
				if last := c.last(1, others[1]); last < uint64(at) {
					t.Errorf("node %d has the entries through %d, of %d", others[1], last, at)
				}
				if err := l.Trim(at + 1); err != nil {
					t.Fatal(err)
				}
				if _, err := l.Append(c.Context(), make([]byte, 300), wlog.Settling); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				c.append(l, size)

				c.kill(others[0]) // the other remaining node must have space
				time.Sleep(2 * time.Second)
				c.bringWhile(l, size)
				if _, err := l.Append(c.Context(), make([]byte, 300), wlog.Settling); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// bringWhile appends Bringing entries, several at a time, until there is no space for them, and returns the last one.
func (c *trio) bringWhile(l wlog.Log, size int) (at wlog.Index) {
	c.Helper()
	var flying []<-chan wlog.Appended
	full := false
	for sent := 0; !full || len(flying) > 0; sent += size {
		if sent > 2<<20 {
			c.Fatalf("%d bytes were appended", sent)
		}
		for len(flying) < 4 && !full {
			f, err := l.Begin(make([]byte, size), wlog.Bringing)
			if full = errors.Is(err, wlog.ErrFull); full {
				break
			} else if err != nil {
				c.Fatal(err)
			}
			flying = append(flying, f)
		}
		if len(flying) == 0 {
			break
		}
		a := <-flying[0]
		if a.Err != nil {
			c.Fatal(a.Err)
		}
		at, flying = a.At, flying[1:]
	}
	return at
}

// The same node, when one large entry does not fit: the node only probes for its space, and used not to free the space of trimmed entries
// meanwhile.
func TestLargeEntryOnAFullDisk(t *testing.T) {
	inTrio(t, func(c *trio) {
		owner := c.owner(1)
		l := c.open(1, owner)
		full := owner%3 + 1
		c.fs[full].SetSpace(10 << 20)
		var at wlog.Index
		for range 5 {
			at = c.append(l, 3<<20)
		}
		time.Sleep(5 * time.Second)
		if last := c.last(1, full); last >= uint64(at) {
			t.Fatalf("node %d has all %d entries: its disk is not full", full, last)
		}
		if err := l.Trim(at + 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if last := c.last(1, full); last < uint64(at) {
			t.Errorf("node %d has the entries through %d, of %d", full, last, at)
		}
	})
}

// fill opens a shard and fills the disk of a node that does not own it with entries of a size. It also returns the last entry.
func (c *trio) fill(shard uint32, size int) (l wlog.Log, full wlog.NodeID, at wlog.Index) {
	c.Helper()
	owner := c.owner(shard)
	full = owner%3 + 1
	l = c.open(shard, owner)
	c.fs[full].SetSpace(150_000)
	for sent := 0; sent < 1<<20; sent += size {
		at = c.append(l, size)
	}
	time.Sleep(5 * time.Second)
	if last := c.last(shard, full); last >= uint64(at) {
		c.Fatalf("node %d has all %d entries: its disk is not full", full, last)
	}
	return l, full, at
}

// last returns the last entry of a node's copy of a shard.
func (c *trio) last(shard uint32, id wlog.NodeID) uint64 {
	c.Helper()
	for _, st := range c.nodes[id].Status() {
		if st.Shard == shard {
			return st.Last
		}
	}
	c.Fatalf("node %d does not have shard %d", id, shard)
	return 0
}

// copyOf returns the entries of a node's copy of a shard.
func (c *trio) copyOf(id wlog.NodeID, shard uint32) Entries {
	fs := c.fs[id].Kill()
	return func(fn func(at wlog.Index, entry []byte) error) error {
		eng := local(c.T, fs)
		_, err := eng.Open(context.Background(), shard, fn)
		return errors.Join(err, eng.Close())
	}
}

// A follower whose disk was full, and which has received every entry since, has a complete copy although no entry follows: the broker is
// drained.
func TestCopyOfANodeWhoseDiskWasFull(t *testing.T) {
	inTrio(t, func(c *trio) {
		l, _, at := c.fill(1, 3_000)
		if err := l.Trim(at + 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		for id := wlog.NodeID(1); id <= 3; id++ {
			last := c.last(1, id)
			eng := local(c.T, crashfs.New(77))
			_, err := Refound(c.Context(), c.copyOf(id, 1), id, eng, 1, 9, func(wlog.Index, []byte) error { return nil })
			if last < uint64(at) || err != nil {
				t.Errorf("node %d has %d of %d, and its copy: %v", id, last, at, err)
			}
		}
	})
}

// The shard has no owner, because one disk is full and another node is gone. The writes that wait for the disk must not grow without bound.
func TestWhatWaitsForAFullDiskIsBounded(t *testing.T) {
	inTrio(t, func(c *trio) {
		_, full, _ := c.fill(1, 3_000)
		c.kill(c.owner(1))
		time.Sleep(time.Minute)
		n := func() int {
			done := make(chan int)
			g := c.nodes[full].running(1).group
			_ = c.nodes[full].running(1).do(func() { done <- len(g.writes) })
			return <-done
		}
		time.Sleep(2 * time.Hour / fewer)
		if n := n(); n > 1000 {
			t.Errorf("%d messages wait", n)
		}
	})
}

// The cost of a refused write, while the disk is full.
func TestRefusedWriteCostsLittle(t *testing.T) {
	for _, size := range []int{1 << 20, 20 << 20 / fewer} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			inTrio(t, func(c *trio) {
				owner := c.owner(1)
				l := c.open(1, owner)
				full := owner%3 + 1
				c.fs[full].SetSpace(150_000)
				c.append(l, size)
				c.append(l, size)
				time.Sleep(5 * time.Second)
				var a, b runtime.MemStats
				runtime.ReadMemStats(&a)
				time.Sleep(10 * time.Second)
				runtime.ReadMemStats(&b)
				if n := b.TotalAlloc - a.TotalAlloc; n > uint64(size) {
					t.Errorf("%d bytes were allocated in 10 s", n)
				}
			})
		})
	}
}

// The node dies between writing the record of a trim and trimming.
func TestNodeDiesBeforeATrim(t *testing.T) {
	for _, dies := range []bool{false, true} {
		inTrio(t, func(c *trio) {
			owner := c.owner(1)
			l := c.open(1, owner)
			full := owner%3 + 1
			c.fs[full].SetSpace(200_000)
			var at wlog.Index
			for sent := 0; sent < 900_000; sent += 20_000 {
				at = c.append(l, 20_000)
			}
			time.Sleep(5 * time.Second)
			if last := c.last(1, full); last >= uint64(at) {
				t.Fatal("not full")
			}
			if dies {
				c.fs[full].Inject(func(op crashfs.Op) error {
					if op.Kind == crashfs.OpRename {
						return crashfs.ErrPower
					}
					return nil
				})
			}
			if err := l.Trim(at + 1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			if dies {
				c.kill(full)
				c.fs[full].Inject(nil)
				c.boot(full, 1, 2, 3)
				time.Sleep(10 * time.Minute)
			}
			base := c.nodes[full].running(1).disk.beginning()
			files, _ := c.fs[full].List()
			for _, f := range files {
				if f.Name == "00001-00000001.seg" {
					t.Errorf("dies %v: the first segment is there, and the log begins behind %d", dies, base)
				}
			}
		})
	}
}

// Repeated answers are also dropped while a write is in progress.
func TestRepeatsAreDropped(t *testing.T) {
	inGame(t, func(c *cluster) {
		n := c.nodes[1]
		if n.g.nextWrite(1) != nil {
			t.Fatal("a node that has just begun has something to write")
		}
		_ = n.g.step(&raftpb.Message{Type: raftpb.MsgVote.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(7)), Index: new(uint64(1)), LogTerm: new(uint64(1))})
		for range 1000 {
			w := n.g.nextWrite(1 << 20)
			if w == nil {
				t.Fatal("nothing to write")
			}
			_ = n.g.step(&raftpb.Message{Type: raftpb.MsgPreVote.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(8)), Index: new(uint64(1)), LogTerm: new(uint64(1))})
			n.g.refused(w)
		}
		if len(n.g.writes) > 10 {
			t.Errorf("%d messages wait", len(n.g.writes))
		}
	})
}

func inGame(t *testing.T, test func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		c := newCluster(4, noFault, map[string]int{})
		test(c)
		c.close()
	})
}

// An owner whose disk was full for a moment has trimmed by its own statement. The other nodes learn of the trim although no entry follows.
func TestOthersLearnWhatAFullOwnerTrimmed(t *testing.T) {
	inGame(t, func(c *cluster) {
		c.calmDown = true
		all := func(rounds int) {
			for range rounds {
				c.round(func(flight) bool { return true })
			}
		}
		all(300)
		n := c.owner()
		for range 20 {
			c.next++
			if err := n.g.propose(bodyHeader{at: c.now}, make([]byte, 5000)); err != nil {
				t.Fatal(err)
			}
			c.after(n)
			all(3)
		}
		through := n.g.applied
		c.next++
		_ = n.g.propose(bodyHeader{at: c.now}, make([]byte, 5000)) // the disk has no space for it
		w := n.g.nextWrite(1 << 20)
		n.g.refused(w)
		n.g.told, c.said = through+1, through+1 // like replica.tell: the journal has trimmed meanwhile
		w = n.g.nextWrite(1 << 20)
		at, err := n.g.disk.log.Append(t.Context(), w.data, w.purpose)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = n.g.written(w, at); err != nil {
			t.Fatal(err)
		}
		all(50)
		for range 300 { // like replica.trimIdle
			if n.g.lacksTrim(through+1, true) {
				n.g.proposeTrim(through + 1)
			}
			all(1)
		}
		for _, id := range c.ids() {
			x := c.nodes[id]
			if x.g.disk.base.index < through {
				t.Errorf("node %d still has the entries from %d on, %d bytes", id, x.g.disk.base.index+1, x.g.disk.between(0, through))
			}
		}
	})
}
