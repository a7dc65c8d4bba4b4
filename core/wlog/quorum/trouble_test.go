package quorum

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// trouble causes a trouble that is not fatal.
func (c *cluster) trouble(n *simNode, kind int) {
	switch kind % 7 {
	case 0:
		c.disk(n)
	case 1:
		c.transfer(n)
	case 2, 3, 4:
		c.counts["stops"]++
		n.wakes = c.now + hook.Instant(c.rng.Int64N(int64(2*time.Second)))
	case 5:
		c.bar(n, !n.barred)
	default:
		n.g.forget(c.someone().id) // whether or not that node has ended
		c.after(n)
	}
}

// bar makes a node notice that its clock is wrong, or right.
func (c *cluster) bar(n *simNode, barred bool) {
	n.barred = barred
	if n.up {
		n.g.passive = n.failed || barred
	}
	c.counts["barred"]++
}

// barOne leaves at most one node with a wrong clock in the end, because the others must be able to give the shard an owner.
func (c *cluster) barOne() {
	but := c.someone()
	for _, id := range c.ids() {
		if n := c.nodes[id]; n != but || c.joins != nil {
			n.barred = false
		}
	}
}

// asleep reports whether a node is stopped. The order of events after it continues is random.
func (c *cluster) asleep(n *simNode) bool {
	if !n.up || n.wakes == 0 {
		return false
	}
	if c.now < n.wakes {
		return true
	}
	c.read(n)
	c.net = append(c.net, n.waits...)
	n.wakes, n.waits = 0, nil
	return false
}

// disk fills a node's disk, frees it, or makes its next write or sync fail.
func (c *cluster) disk(n *simNode) {
	switch kind := c.rng.IntN(4); {
	case n.small && kind < 3:
		c.others(n, int64(c.rng.IntN(40_000)))
	case kind == 0:
		n.fs.SetSpace(int64(c.rng.IntN(40_000)))
		c.counts["full disks"]++
	case kind < 3:
		n.fs.SetSpace(1 << 40)
	default:
		kind := crashfs.OpWrite
		if c.rng.IntN(2) == 0 {
			kind = crashfs.OpSync
		}
		n.fs.FailNth(kind, c.rng.IntN(3))
		c.counts["failures of disks"]++
	}
}

// append makes the node's disk take the write in progress. If the disk is full, the write is tried again later.
func (c *cluster) append(n *simNode) (done bool) {
	w := n.writing
	if len(w.data) == 0 {
		return true
	}
	if c.spurious() {
		c.counts["spurious"]++
		n.writing = nil
		n.g.refused(w)
		c.after(n)
		return false
	}
	at, err := n.g.disk.log.Append(context.Background(), w.data, w.purpose)
	synctest.Wait() // let the log's goroutines finish
	switch {
	case errors.Is(err, wlog.ErrFull):
		c.counts["waits for space"]++
		time.Sleep(fullPause) // the log checks for space from time to time
		n.writing = nil
		n.g.refused(w)
		c.after(n)
		return false
	case err != nil && c.fault == repeatsWrites:
		c.repeat(n)
		return false
	case err != nil:
		c.broken(n)
		return false
	}
	n.at = at
	return true
}

// repeat opens the disk again as if nothing had happened, and takes the write in progress for written.
func (c *cluster) repeat(n *simNode) {
	w := n.writing
	n.writing = nil
	for _, m := range w.messages {
		n.g.answer(m.GetResponses())
	}
	n.g.collect()
	c.after(n)
	c.broken(n)
}

// broken notes that a node's disk has failed: the node writes nothing any more, and lives until another node has taken over.
func (c *cluster) broken(n *simNode) {
	n.failed = true
	n.g.passive = true
	n.g.handOver()
	c.after(n)
}

func (c *cluster) reserve(n *simNode, size int) error {
	defer synctest.Wait()
	return n.g.disk.log.(interface {
		Reserve(size int, purpose wlog.Purpose) error
	}).Reserve(size+bodyHeaderSize+entryHeaderSize+hardStateSize, wlog.Bringing)
}

// transfer makes an owner transfer the shard to any node.
func (c *cluster) transfer(n *simNode) {
	if n.g.owner > 0 {
		n.g.transfer(c.someone().id)
		c.counts["transfers"]++
		c.after(n)
	}
}

// asked is a read: the question which entries are durable.
type asked struct {
	by    uint64
	life  *group
	floor uint64 // the last durable entry when the question was asked
}

func (c *cluster) read(n *simNode) {
	c.next++
	c.reads[c.next] = asked{n.id, n.g, c.durable}
	if c.fault == readsAlone && n.g.owner > 0 {
		c.judge(n, c.next, n.g.applied)
		return
	}
	n.g.read(binary.LittleEndian.AppendUint64(nil, c.next))
	c.after(n)
}

// answered checks the answers that a node has received.
func (c *cluster) answered(n *simNode) {
	for _, s := range n.g.reads {
		c.judge(n, binary.LittleEndian.Uint64(s.RequestCtx), s.Index)
	}
	n.g.reads = nil
}

func (c *cluster) judge(n *simNode, id, index uint64) {
	q, known := c.reads[id]
	if !known || q.by != n.id || q.life != n.g {
		return // the question is from an earlier life, where the replica's numbers were others
	}
	c.counts["reads"]++
	if index < q.floor {
		c.fail("node %d is told that entries through %d are durable, and those through %d were when it asked", n.id, index, q.floor)
	}
}

// replace begins the replacement of a node, or makes the owner continue it.
func (c *cluster) replace() {
	n := c.owner()
	if n == nil || c.fault == losesDisk || c.smallDisks() && !c.twoSmall() { // when two of three nodes cannot write, the shard stands still
		return
	}
	if c.play == nil {
		c.beginReplacement(n)
		return
	}
	if c.playBy != n.g.owner { // each owner continues from the configuration
		c.play, c.playBy = &replacement{old: c.play.old, by: c.play.by}, n.g.owner
	}
	x := c.play
	done, err := x.step(n.g, c.rng.IntN(2) == 0)
	c.after(n)
	if errors.Is(err, ErrOwner) {
		c.transfer(n)
	}
	if !done {
		return
	}
	if l := c.nodes[x.old]; l.up {
		c.crash(l)
	}
	c.nodes[x.old].gone = true
	c.play = nil
	c.counts["replacements"]++
}

func (c *cluster) beginReplacement(n *simNode) {
	voters := n.g.disk.configurationAt(n.g.applied).GetVoters()
	old := c.nodes[voters[c.rng.IntN(len(voters))]]
	if c.rng.IntN(2) == 0 && !c.anyGone(voters) { // its disk is lost
		if old.up {
			c.crash(old)
		}
		old.gone = true
	}
	by := c.add()
	c.play = &replacement{old: old.id, by: by.id}
	c.boot(by, nil)
}

func (c *cluster) anyGone(ids []uint64) bool {
	return slices.ContainsFunc(ids, func(id uint64) bool { return c.nodes[id].gone })
}

// answerEarly sends answers before the disk has the entries that they confirm.
func (c *cluster) answerEarly(n *simNode) {
	for _, m := range n.g.writes {
		m.Responses = slices.DeleteFunc(m.GetResponses(), func(r *raftpb.Message) bool {
			if r.GetTo() != n.id {
				c.net = append(c.net, flight{n.id, r})
			}
			return r.GetTo() != n.id
		})
	}
}

// withoutVotes returns a write whose hard states have no vote.
func withoutVotes(w *write) *write {
	b := bytes.Clone(w.data)
	for off := 0; off+hardStateSize <= len(b) && b[off] == recHardState; off += hardStateSize {
		clear(b[off+9 : off+17])
	}
	w.data = b
	return w
}

// twoSmall reports whether two nodes have small disks. The shard may stand still then, and only safety is checked.
func (c *cluster) twoSmall() bool { return c.seed%8 == 6 }

// spurious decides by chance whether a write is refused although there is space.
func (c *cluster) spurious() bool {
	if c.fault != noFault || c.calmDown {
		return false
	}
	return c.rng.IntN(2+int(c.seed%7)) == 0
}

// claims checks that entries and votes that a node states in a message are on its disk.
func (c *cluster) claims(n *simNode, m *raftpb.Message) {
	if c.fault != noFault || m.GetReject() {
		return
	}
	h := n.g.disk.hard
	switch m.GetType() {
	case raftpb.MsgVoteResp:
		k := [2]uint64{n.id, m.GetTerm()}
		if c.votes == nil {
			c.votes = map[[2]uint64]uint64{}
		}
		if v := c.votes[k]; v != 0 && v != m.GetTo() {
			c.fail("node %d votes for %d and %d in term %d", n.id, v, m.GetTo(), m.GetTerm())
		}
		c.votes[k] = m.GetTo()
		if h.term < m.GetTerm() || h.term == m.GetTerm() && h.vote != m.GetTo() {
			c.fail("node %d says it voted for %d in term %d, and has %v", n.id, m.GetTo(), m.GetTerm(), h)
		}
		c.counts["votes"]++
	case raftpb.MsgAppResp:
		if m.GetIndex() == 0 {
			return
		}
		if h.term < m.GetTerm() {
			c.fail("node %d says it has %d in term %d, and has %v", n.id, m.GetIndex(), m.GetTerm(), h)
		}
		if h.term == m.GetTerm() && n.g.disk.last().index < m.GetIndex() {
			c.fail("node %d says it has %d in term %d, and has %d", n.id, m.GetIndex(), m.GetTerm(), n.g.disk.last().index)
		}
		c.counts["acks"]++
	}
}

// others makes other files take bytes of a small disk, and frees the bytes that they took before.
func (c *cluster) others(n *simNode, bytes int64) {
	sp, err := n.fs.Space()
	if err != nil {
		return
	}
	free := sp.Free + n.taken
	n.taken = min(free, bytes)
	n.fs.SetSpace(free - n.taken)
}
