package quorum

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// A node whose disk was full to the last byte has space again when the owner needs nothing of the log any more. It stayed behind until it
// was restarted: it repeated the write that did not fit, and what would have freed its disk came behind that.
func TestDiskFullToTheLastByteIsFreed(t *testing.T) {
	for _, space := range []int64{100_000, 131_072, 150_000, 200_001, 300_000, 413_000} {
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

// So it has if the owner has trimmed what the node lacks: it is told where the log goes on, and that comes before what does not fit.
func TestDiskFullToTheLastByteIsFreedByABeginning(t *testing.T) {
	inTrio(t, func(c *trio) {
		l, full := c.fill(1, 20_000)
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

// An owner with space refuses what brings more before the disks of the others are full: nobody could take anything away then, because that could
// not be confirmed either.
func TestMajorityWithoutSpace(t *testing.T) {
	for _, size := range []int{100, 700, 1_900} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			inTrio(t, func(c *trio) {
				owner := c.owner(1)
				l := c.open(1, owner).(wlog.Pipeline)
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

				c.kill(others[0]) // of those that are left, the other must have space
				time.Sleep(2 * time.Second)
				c.bringWhile(l, size)
				if _, err := l.Append(c.Context(), make([]byte, 300), wlog.Settling); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// bringWhile appends entries that bring more, some at a time, until there is no space for them, and returns the last.
func (c *trio) bringWhile(l wlog.Pipeline, size int) (at wlog.Index) {
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

// fill opens a shard and has entries of a size fill the disk of a node that does not own it.
func (c *trio) fill(shard uint32, size int) (wlog.Log, wlog.NodeID) {
	c.Helper()
	owner := c.owner(shard)
	full := owner%3 + 1
	l := c.open(shard, owner)
	c.fs[full].SetSpace(150_000)
	var at wlog.Index
	for sent := 0; sent < 1<<20; sent += size {
		at = c.append(l, size)
	}
	time.Sleep(5 * time.Second)
	if last := c.last(shard, full); last >= uint64(at) {
		c.Fatalf("node %d has all %d entries: its disk is not full", full, last)
	}
	return l, full
}

// last returns the last entry that a node has of a shard.
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
