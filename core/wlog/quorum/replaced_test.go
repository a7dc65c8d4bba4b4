package quorum

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

// appends returns a leader's message with entries of its own term and of the given sizes, behind an entry of a term.
func appends(from, term uint64, behind position, commit, trim uint64, sizes ...int) *raftpb.Message {
	m := &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: &from, To: new(uint64(1)), Term: &term, Index: &behind.index, LogTerm: &behind.term, Commit: &commit,
		Context: binary.LittleEndian.AppendUint64(make([]byte, 16), trim), // a stamp
	}
	for i, size := range sizes {
		m.Entries = append(m.Entries, &raftpb.Entry{
			Index: new(behind.index + 1 + uint64(i)), Term: &term, Type: raftpb.EntryNormal.Enum(), Data: make([]byte, size),
		})
	}
	return m
}

// hear passes leaders' messages to a node.
func (c *cluster) hear(n *simNode, ms ...*raftpb.Message) {
	for _, m := range ms {
		c.said = max(c.said, binary.LittleEndian.Uint64(m.GetContext()[16:]))
		c.hand(n, flight{m.GetFrom(), m})
		c.after(n)
	}
}

// refuse makes the disk refuse the next write.
func (c *cluster) refuse(n *simNode) {
	n.g.refused(n.g.nextWrite(1))
	c.after(n)
}

// put makes the disk take the next write, which must have this entry and no other.
func (c *cluster) put(t *testing.T, n *simNode, index uint64) {
	t.Helper()
	w := n.g.nextWrite(1)
	if w == nil || !slices.Equal(w.indexes, []uint64{index}) {
		t.Fatalf("it writes %+v, not entry %d", w, index)
	}
	if n.writing, n.at = w, 0; !c.append(n) {
		t.Fatalf("there is no space for entry %d", index)
	}
	c.wrote(n)
}

// A node has uncommitted entries on its disk, the last of which the next leader replaces. It learns that the entries before are committed
// and not needed any more, while further entries of the old leader wait for space on the disk. The node applied none of its entries, and so
// trimmed none: it waited for ever.
func TestReplacedEntriesWaitForAFullDisk(t *testing.T) {
	inGame(t, func(c *cluster) {
		c.calmDown = true
		n := c.nodes[1]
		n.fs.SetSpace(16<<10 + 4<<10) // space for one more segment
		c.hear(n, appends(2, 2, first, 1, 0, 12_000, 12_000, 8_000, 100))
		for range 2 { // refused writes are halved
			c.refuse(n)
		}
		c.put(t, n, 2)
		c.put(t, n, 3)
		c.hear(n, appends(3, 3, position{2, 2}, 2, 3, 3_000)) // entry 2 is not needed any more, and entry 3 is replaced
		for range 100 {
			c.write(n)
		}
		if last := n.g.disk.last(); last != (position{3, 3}) || n.g.applied < 2 || n.g.full {
			t.Errorf("its log ends with %v, and %d is applied; %d messages wait", last, n.g.applied, len(n.g.writes))
		}
	})
}

// All entries on a node's disk are to be replaced, and so are the entries that wait for space, so nothing can be freed before. Only the
// replacements fit, but they came behind the entries that do not fit.
func TestReplacedEntriesAreNotWaitedFor(t *testing.T) {
	inGame(t, func(c *cluster) {
		c.calmDown = true
		n := c.nodes[1]
		n.fs.SetSpace(16<<10 + 8<<10)
		c.hear(n, appends(2, 2, first, 1, 0, 12_000), appends(2, 2, position{2, 2}, 1, 0, 12_000), appends(2, 2, position{3, 2}, 1, 0, 12_000, 12_000))
		c.put(t, n, 2)
		c.put(t, n, 3)
		c.hear(n, appends(3, 3, first, 1, 0, 100))
		for range 100 {
			c.write(n)
		}
		if last := n.g.disk.last(); last != (position{2, 3}) || n.g.full || n.g.unwritten > 0 {
			t.Errorf("its log ends with %v; %d messages wait, %d bytes", last, len(n.g.writes), n.g.unwritten)
		}
		for _, f := range c.net {
			if f.from == n.id && f.m.GetType() == raftpb.MsgAppResp && f.m.GetIndex() > 3 {
				t.Errorf("it says that it has entry %d, which was never on its disk", f.m.GetIndex())
			}
		}
	})
}

// The same, when the waiting entries are large, and the disk is only probed for their space.
func TestLargeReplacedEntryIsNotWaitedFor(t *testing.T) {
	inTrio(t, func(c *trio) {
		full := c.owner(1)%3 + 1
		c.append(c.open(1, c.owner(1)), 100)
		time.Sleep(time.Second)
		c.isolate(full, true)
		r := c.nodes[full].running(1)
		last := func() position {
			at := make(chan position)
			if err := r.do(func() { at <- r.disk.last() }); err != nil {
				t.Fatal(err)
			}
			return <-at
		}
		begin := last()
		c.fs[full].SetSpace(1 << 20)
		hear := func(m *raftpb.Message) {
			m.To = new(uint64(full))
			if err := c.nodes[full].Receive(wlog.NodeID(m.GetFrom()), 1, encode(m)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
		}
		from := uint64(full)%3 + 1
		hear(appends(from, 100, begin, begin.index, 0, 100))
		hear(appends(from, 100, position{begin.index + 1, 100}, begin.index, 0, 3<<20))
		if got := last(); got != (position{begin.index + 1, 100}) {
			t.Fatalf("its log ends with %v, and began with %v: its disk is not full", got, begin)
		}
		hear(appends(from, 101, begin, begin.index, 0, 100))
		if got := last(); got != (position{begin.index + 1, 101}) {
			t.Errorf("its log ends with %v", got)
		}
	})
}

// A leader with a full disk, which had entries waiting to replace its whole log, believed that no other node had caught up. It transferred
// the shard to no node, and the shard had no owner while the disk was full. Found by game 100391882.
func TestEntriesThatWaitToReplaceOthersAreInMemory(t *testing.T) {
	inGame(t, func(c *cluster) {
		c.calmDown = true
		n := c.nodes[1]
		c.hear(n, appends(2, 2, first, 1, 0, 100, 100, 100, 100))
		for range 100 {
			c.write(n)
		}
		for d := n.g.disk; d.cold < len(d.entries); d.cold++ {
			d.evict(d.cold)
		}
		if from := n.g.recent(); from != 6 {
			t.Fatalf("of entries 2 to 5, all out of memory, those from %d on are in memory", from)
		}
		n.fs.SetSpace(0)
		c.hear(n, appends(3, 3, position{3, 2}, 1, 0, 100))
		if from := n.g.recent(); from != 4 {
			t.Errorf("while entry 4 waits to replace 4 and 5, those from %d on are in memory", from)
		}
	})
}

// The replacements of all entries on a full disk do not fit either. They come from an owner that has trimmed a part of them; because the
// node has that part in memory, the owner sends no new beginning of the log, and the node waits. The wait ends when the owner's log begins
// behind the waiting entries.
func TestReplacedEntriesWaitForTheOwnersTrim(t *testing.T) {
	inGame(t, func(c *cluster) {
		c.calmDown = true
		n, owner, other := c.nodes[1], c.nodes[2], c.nodes[3]
		n.fs.SetSpace(16<<10 + 8<<10)
		c.hear(n, appends(3, 3, first, 1, 0, 12_000), appends(3, 3, position{2, 3}, 1, 0, 12_000))
		for _, node := range []*simNode{owner, other} { // neither has these entries, and one has a different one
			m := appends(3, 2, first, 1, 0, 12_000)
			if node == other {
				m.Entries = nil
			}
			later := appends(3, 3, first, 1, 0)
			m.To, later.To = &node.id, &node.id
			c.hear(node, m, later)
		}
		for range 10 {
			c.write(n)
			c.write(owner)
			c.write(other)
			owner.g.forgetLeader()
			other.g.forgetLeader()
		}
		n.g.passive, other.g.passive, c.net = true, true, nil
		owner.g.campaign()
		c.after(owner)
		c.talk(50)
		if owner.g.owner != 4 || n.g.disk.last() != (position{3, 3}) || !n.g.full {
			t.Fatalf("it owns the shard in term %d; the full disk ends with %v", owner.g.owner, n.g.disk.last())
		}
		for trim := uint64(3); trim < 20; trim++ {
			c.said = max(c.said, trim)
			if err := owner.g.propose(bodyHeader{trim: trim, at: c.now}, make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			c.after(owner)
			c.talk(10)
			if waits := n.g.full; waits != (owner.g.disk.base.index <= 2) {
				t.Fatalf("the owner's log begins behind %v, and that of the full disk behind %v; it waits: %t", owner.g.disk.base, n.g.disk.base, waits)
			}
		}
		if last := n.g.disk.last(); last != owner.g.disk.last() {
			t.Errorf("the full disk ends with %v, and the owner's with %v", last, owner.g.disk.last())
		}
	})
}

// talk lets the nodes exchange messages and write for some ticks.
func (c *cluster) talk(ticks int) {
	for range ticks {
		for _, id := range c.ids() {
			c.nodes[id].g.tick()
			c.after(c.nodes[id])
		}
		for range 10 {
			for len(c.net) > 0 {
				f := c.net[0]
				c.net = c.net[1:]
				to := c.nodes[f.m.GetTo()]
				c.report(f, true)
				c.hand(to, f)
				c.after(to)
			}
			for _, id := range c.ids() {
				c.write(c.nodes[id])
			}
		}
	}
}
