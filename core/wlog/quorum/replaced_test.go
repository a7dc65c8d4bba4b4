package quorum

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

// appends returns what a leader sends behind an entry of a term: entries of its own term, of those sizes.
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

// hear has a node hear what leaders say.
func (c *cluster) hear(n *simNode, ms ...*raftpb.Message) {
	for _, m := range ms {
		c.said = max(c.said, binary.LittleEndian.Uint64(m.GetContext()[16:]))
		c.hand(n, flight{m.GetFrom(), m})
		c.after(n)
	}
}

// refuse has the disk refuse the next write.
func (c *cluster) refuse(n *simNode) {
	n.g.refused(n.g.nextWrite(1))
	c.after(n)
}

// put has the disk take the next write, which is to have an entry, and no other.
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

// A node has entries on its disk that its leader has not told it to be committed, and then the leader's successor replaces the last of them. It
// gets told that those before are committed, and not needed, while more of the old leader's wait for a disk that has no space for them. The node
// did not apply any of what it had, and so did not trim it: it waited for ever.
func TestReplacedEntriesWaitForAFullDisk(t *testing.T) {
	inGame(t, func(c *cluster) {
		c.calmDown = true
		n := c.nodes[1]
		n.fs.SetSpace(16<<10 + 4<<10) // for one segment more
		c.hear(n, appends(2, 2, first, 1, 0, 12_000, 12_000, 8_000, 100))
		for range 2 { // they are halved
			c.refuse(n)
		}
		c.put(t, n, 2)
		c.put(t, n, 3)
		c.hear(n, appends(3, 3, position{2, 2}, 2, 3, 3_000)) // entry 2 is not needed any more, and 3 is another
		for range 100 {
			c.write(n)
		}
		if last := n.g.disk.last(); last != (position{3, 3}) || n.g.applied < 2 || n.g.full {
			t.Errorf("its log ends with %v, and %d is applied; %d messages wait", last, n.g.applied, len(n.g.writes))
		}
	})
}

// All that is on a node's disk is to be replaced, and so is what waits for space there, so nothing gets free before: only what replaces it has
// space. It came behind what has none.
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

// So it is if the disk is only asked whether it has space for what waits, because that is large.
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

// A leader whose full disk had entries behind all of its log, which wait to be replaced, took the others for not caught up: it handed the shard
// over to nobody, and nobody owned it while the disk was full. Found by game 100391882.
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

// What replaces all that is on a full disk does not fit either, and comes from an owner that has trimmed a part of it: the node has that in memory,
// so it is not told that the log begins later, and waits. That ends when the owner's log begins behind what waits.
func TestReplacedEntriesWaitForTheOwnersTrim(t *testing.T) {
	inGame(t, func(c *cluster) {
		c.calmDown = true
		n, owner, other := c.nodes[1], c.nodes[2], c.nodes[3]
		n.fs.SetSpace(16<<10 + 8<<10)
		c.hear(n, appends(3, 3, first, 1, 0, 12_000), appends(3, 3, position{2, 3}, 1, 0, 12_000))
		for _, node := range []*simNode{owner, other} { // they do not have these entries, and one has another
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

// talk has the nodes hear each other for so many ticks, and write.
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
