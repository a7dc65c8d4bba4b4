package quorum

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/sdk/hook"
)

// fault is a deliberate error of a simulated cluster, which the simulation must find.
type fault uint8

const (
	noFault       fault = iota
	answersEarly        // confirms writes that are not on the disk
	forgetsVotes        // does not write its votes
	staysSilent         // does not report whether a beginning of the log was delivered
	losesDisk           // comes back with an empty disk under its old number
	readsAlone          // answers reads without checking that it still leads
	usesOwnClock        // takes a shard over with its own time
	repeatsWrites       // repeats a refused write as if it had been written
	forgetsTime         // forgets the shard's time at a restart
	tellsNothing        // does not tell others the shard's time
)

// cluster is a simulated cluster. A game with it fails by a panic with a string.
type cluster struct {
	rng   *rand.Rand
	calm  int // troubles are rarer by this factor than in the wildest games
	fault fault
	seed  uint64

	nodes   map[uint64]*simNode
	order   []uint64 // numbers of the nodes, rising
	lastID  uint64
	play    *replacement             // the replacement under way
	playBy  uint64                   // the term of the owner that carries it out
	joins   *joining                 // gives the other nodes votes, in a cluster founded by one; nil = done
	joinsBy uint64                   // the term of the owner that carries it out
	now     hook.Instant             // a millisecond for each step
	timed   map[uint64]bool          // terms with committed entries that have a time
	aheads  map[uint64]time.Duration // how far the owner's time was ahead, by term
	delays  map[uint64][]delay       // of committed entries, by the term of their owner
	began   map[uint64]hook.Instant  // when a node first stood for election, by term
	reads   map[uint64]asked         // by number
	durable uint64                   // index of the last entry that was acknowledged to its proposer

	net      []flight
	cut      map[[2]uint64]bool   // by sender and receiver
	facts    map[uint64]fact      // committed entries by index
	acked    map[uint64]uint64    // number of a proposal → its index
	said     uint64               // like needed, as owners have stated before it was committed
	calmDown bool                 // the game is over, and the cluster settles
	votes    map[[2]uint64]uint64 // by node and term
	needed   uint64               // an owner has stated that no entry before it is needed
	leaders  map[uint64]uint64    // by term
	next     uint64               // number of the last proposal
	counts   map[string]int
}

type simNode struct {
	id    uint64
	fs    *crashfs.FS
	eng   *seg.Engine
	g     *group
	up    bool
	gone  bool            // for ever
	stuck int             // ticks in which its disk has been full
	taken int64           // bytes of its disk that other files have
	small bool            // its disk is small, and only trims free it
	seen  uint64          // index of the last entry that the node has applied
	mine  map[uint64]bool // proposals of this life
	begun []begun         // unacknowledged proposals of the present term, in order

	writing *write       // the write in progress; nil = none
	at      wlog.Index   // index of the write, once it is durable
	failed  bool         // its disk has failed, and takes no writes any more
	voted   bool         // the last write had a vote for another node
	barred  bool         // its clock is wrong, so it must own no shard
	wakes   hook.Instant // the node is stopped until then; 0 = it runs
	waits   []flight     // messages that arrive when it continues
	skew    hook.Instant // of its clock
	void    kept         // its kept time when its clock was set
	samples samples
	booted  hook.Instant
	owned   uint64        // the last term in which it owned the shard
	offset  time.Duration // of the shard's time, in that term
}

// begun is a proposal and the index of its entry.
type begun struct{ id, index, term uint64 }

type fact struct {
	term uint64
	body []byte
}

func newCluster(seed uint64, f fault, counts map[string]int) *cluster {
	c := &cluster{
		rng: rand.New(rand.NewPCG(seed, 1)), fault: f, seed: seed, nodes: map[uint64]*simNode{}, cut: map[[2]uint64]bool{},
		facts: map[uint64]fact{}, acked: map[uint64]uint64{}, leaders: map[uint64]uint64{}, counts: counts, reads: map[uint64]asked{},
		timed: map[uint64]bool{}, aheads: map[uint64]time.Duration{}, delays: map[uint64][]delay{}, began: map[uint64]hook.Instant{}, now: hook.Instant(time.Hour),
	}
	c.calm = 1 << c.rng.IntN(5)
	if seed%3 == 0 && f == noFault {
		c.foundByOne()
		return c
	}
	for range 3 {
		c.boot(c.add(), []uint64{1, 2, 3})
	}
	return c
}

func (c *cluster) fail(format string, a ...any) {
	panic(fmt.Sprintf(format, a...))
}

func (c *cluster) add() *simNode {
	c.lastID++
	n := &simNode{id: c.lastID, fs: crashfs.New(c.seed*1000 + c.lastID), skew: c.someSkew()}
	n.small = c.smallDisks() && (n.id == 1+c.seed/4%3 || c.twoSmall() && n.id == 1+(c.seed/4+1)%3)
	c.nodes[n.id] = n
	c.order = append(c.order, n.id)
	return n
}

// smallDisks reports whether some nodes have small disks, and the entries are large.
func (c *cluster) smallDisks() bool { return c.fault == noFault && c.seed%4 == 2 }

// ids returns the numbers of all nodes, in order. The caller must not change the slice.
func (c *cluster) ids() []uint64 { return c.order }

func (c *cluster) boot(n *simNode, voters []uint64) {
	if n.fs.Inject(nil); n.small && n.g == nil {
		n.fs.SetSpace(int64(40_000 + c.seed%13*8_000))
	}
	clock := func() hook.Instant { return 1 }
	eng, err := seg.New(n.fs, seg.Options{SegmentSize: 16 << 10, Clock: clock})
	if err != nil {
		c.fail("node %d: %v", n.id, err)
	}
	d, err := openDisk(context.Background(), eng, 1, voters)
	synctest.Wait()
	if err != nil {
		c.fail("node %d: %v", n.id, err)
	}
	n.eng, n.up, n.mine = eng, true, map[uint64]bool{}
	n.begun = nil
	n.writing, n.failed, n.samples, n.owned = nil, false, samplesOf(d.time, 0), 0
	if c.rng.IntN(16) == 0 {
		n.skew, n.void = c.someSkew(), d.time
	}
	if c.fault == forgetsTime {
		n.samples = samples{}
	}
	o := options{id: n.id, election: 10, heartbeat: 2, maxSize: 2048, inflight: 8, trimEach: 5, trimBytes: 1500, first: 1, prompt: c.seed%2 > 0}
	n.g, err = newGroup(context.Background(), d, o, func(p position, data []byte) { c.committed(n, p, data) }, func(p position) { c.restarted(n, p) })
	if err != nil {
		c.fail("node %d: %v", n.id, err)
	}
	n.g.timed = func(term uint64, at hook.Instant, by source) { n.samples.take(term, at, c.now+n.skew, by) }
	if c.fault != tellsNothing {
		n.g.known = func() (uint64, hook.Instant, bool) { return n.samples.latestKnown(c.now + n.skew) }
	}
	n.booted = c.now
	n.g.passive, n.g.lends = n.barred, true
	n.seen = n.g.applied
	c.recall(n)
	n.g.start()
	if c.rng.IntN(2) == 0 {
		n.g.prefer()
	}
	c.after(n)
}

// recall checks the entries that a node has applied in earlier lives, because they are not applied again.
func (c *cluster) recall(n *simNode) {
	d := n.g.disk
	for index := d.base.index + 1; index <= n.g.applied; index++ {
		es, err := d.Entries(index, index+1, 1)
		if err != nil {
			c.fail("node %d: entry %d: %v", n.id, index, err)
		}
		var data []byte
		if es[0].GetType() == raftpb.EntryNormal && len(es[0].GetData()) >= bodyHeaderSize {
			data = es[0].GetData()
		}
		c.fact(n, position{index, es[0].GetTerm()}, data)
	}
}

// committed checks that all nodes apply the same entries, and each of them once.
func (c *cluster) committed(n *simNode, p position, data []byte) {
	if p.index != n.seen+1 {
		c.fail("node %d is told of entry %d after %d", n.id, p.index, n.seen)
	}
	n.seen = p.index
	c.fact(n, p, data)
	if data == nil {
		return
	}
	c.timed[p.term] = true
	c.noteDelay(p, readBodyHeader(data).at)
	if id := binary.LittleEndian.Uint64(data[bodyHeaderSize:]); n.mine[id] {
		c.acked[id], c.durable = p.index, max(c.durable, p.index)
	}
}

// acknowledge acknowledges entries that are durable on a majority, even before the owner has them on its disk.
func (c *cluster) acknowledge(n *simNode) {
	durable := n.g.durable()
	for len(n.begun) > 0 && (n.begun[0].term != n.g.owner || n.begun[0].index <= durable) {
		b := n.begun[0]
		if n.begun = n.begun[1:]; b.term != n.g.owner {
			continue
		}
		if _, known := c.acked[b.id]; !known {
			c.counts["acknowledged before the owner has it"]++
		}
		c.acked[b.id], c.durable = b.index, max(c.durable, b.index)
	}
}

// fact checks that all nodes have the same committed entry.
func (c *cluster) fact(n *simNode, p position, data []byte) {
	f, known := c.facts[p.index]
	switch {
	case !known:
		c.facts[p.index] = fact{p.term, bytes.Clone(data)}
	case f.term != p.term || !bytes.Equal(f.body, data):
		c.fail("node %d is told of another entry %d: of term %d, it was %d", n.id, p.index, p.term, f.term)
	}
}

func (c *cluster) restarted(n *simNode, p position) {
	c.counts["restarted"]++
	n.seen = p.index
}

// after sends a node's messages, and checks that no other node leads in its term.
func (c *cluster) after(n *simNode) {
	if c.fault == answersEarly {
		c.answerEarly(n)
	}
	c.acknowledge(n)
	for _, m := range n.g.outbox() {
		c.claims(n, m)
		c.net = append(c.net, flight{n.id, m})
	}
	c.needed = max(c.needed, n.g.head.trim)
	if n.g.told > max(c.needed, c.said) {
		c.fail("node %d was told %d, and owners said %d", n.id, n.g.told, max(c.needed, c.said))
	}
	if term := n.g.term; c.began[term] == 0 {
		c.began[term] = c.now
	}
	c.answered(n)
	if o := n.g.owner; o > 0 && o != n.owned {
		if n.barred {
			c.fail("node %d owns the shard, and its clock is wrong", n.id)
		}
		c.takeOver(n)
	}
	s := n.g.node.BasicStatus()
	if s.RaftState != raft.StateLeader {
		return
	}
	term := s.HardState.GetTerm()
	switch l := c.leaders[term]; l {
	case n.id:
	case 0:
		c.leaders[term] = n.id
		c.counts["elections"]++
	default:
		c.fail("term %d has leaders %d and %d", term, l, n.id)
	}
}

// write begins a node's next write, or ends the one in progress.
func (c *cluster) write(n *simNode) {
	if n.writing != nil {
		c.wrote(n)
		return
	}
	c.remember(n, c.rng.IntN(50) == 0)
	w := n.g.nextWrite(1 + c.rng.IntN(4000))
	if w == nil {
		return
	}
	if c.fault == forgetsVotes {
		n.voted = w.hard.vote != 0 && w.hard.vote != n.id
		w = withoutVotes(w)
	}
	if n.writing, n.at = w, 0; c.append(n) && c.rng.IntN(4) > 0 {
		c.wrote(n) // else other nodes continue first
	}
}

// wrote ends a write.
func (c *cluster) wrote(n *simNode) {
	w := n.writing
	if len(w.data) > 0 && n.at == 0 && !c.append(n) {
		return
	}
	n.writing = nil
	c.count(w)
	before, err := n.g.written(w, n.at)
	if err != nil {
		c.fail("node %d: %v", n.id, err)
	}
	if before > 0 {
		if err := n.g.disk.log.Trim(before); err != nil {
			c.broken(n)
		}
		synctest.Wait()
	}
	c.after(n)
}

func (c *cluster) count(w *write) {
	switch full := w.purpose == wlog.Trimming; {
	case full && len(w.messages) > 1:
		c.counts["beginnings before their turn"]++
	case full:
		c.counts["trims of full disks"]++
	case w.begins != (position{}) && !w.anew:
		c.counts["trims"]++
	}
}

func (c *cluster) crash(n *simNode) {
	old := n.eng
	if c.rng.IntN(2) == 0 {
		n.fs = n.fs.LosePower()
		c.counts["power losses"]++
	} else {
		n.fs = n.fs.Kill()
		c.counts["kills"]++
	}
	synctest.Wait()
	_ = old.Close() // the former life changes nothing on the disk of the next one
	c.net = append(c.net, n.waits...)
	n.wakes, n.waits = 0, nil
	if n.up, n.writing = false, nil; c.fault == losesDisk && c.rng.IntN(4) == 0 {
		n.fs = crashfs.New(c.rng.Uint64())
		c.counts["empty disks"]++
	}
}

// someone returns a node that is not gone for ever.
func (c *cluster) someone() *simNode {
	here := 0
	for _, id := range c.order {
		if !c.nodes[id].gone {
			here++
		}
	}
	nth := c.rng.IntN(here)
	for _, id := range c.order {
		n := c.nodes[id]
		if n.gone {
			continue
		}
		if nth == 0 {
			return n
		}
		nth--
	}
	return nil
}

func (c *cluster) step() {
	c.now += hook.Instant(time.Millisecond)
	n := c.someone()
	if c.asleep(n) {
		return
	}
	switch r := c.rng.IntN(1000); {
	case r < 390:
		c.deliver()
	case r < 580 && n.up:
		c.tick(n)
	case r < 820 && n.up:
		if !n.failed {
			c.write(n)
		}
		if n.voted && n.writing == nil && n.up { // a forgotten vote matters only then, and not for long
			n.voted = false
			c.crash(n)
			c.boot(n, c.voters(n))
		}
	case r < 900 && n.up:
		c.propose(n)
	case r < 908 && n.up:
		if c.bad() {
			c.crash(n)
		}
	case r < 940 && !n.up:
		c.boot(n, c.voters(n))
	case r < 945:
		if c.bad() {
			ids := c.ids()
			a, b := ids[c.rng.IntN(len(ids))], ids[c.rng.IntN(len(ids))]
			c.cut[[2]uint64{a, b}] = c.rng.IntN(3) == 0
		}
	case r < 948:
		if c.bad() {
			c.isolate(n)
		}
	case r < 965:
		if c.joins != nil {
			c.join()
		} else {
			c.replace()
		}
	case r < 975 && n.up:
		if c.bad() {
			c.trouble(n, r)
		}
	case r < 990 && n.up:
		c.read(n)
	case r < 995 && n.up:
		c.ping(n)
	}
}

// bad decides by chance whether a trouble happens.
func (c *cluster) bad() bool { return c.rng.IntN(c.calm) == 0 }

func (c *cluster) tick(n *simNode) {
	if n.stuck++; !n.g.full {
		n.stuck = 0
	}
	stalled := n.stuck > 50
	n.g.passive, n.g.lends = n.failed || n.barred || stalled, !n.failed && !stalled
	n.g.tick()
	if n.g.passive {
		n.g.handOver()
	}
	c.after(n)
	if n.failed && (n.g.state != raft.StateLeader || c.rng.IntN(10) == 0) {
		c.crash(n) // its replica ends
	}
}

// voters returns the voters with which a node begins a new log, if it has none.
func (c *cluster) voters(n *simNode) []uint64 {
	if c.fault == losesDisk && n.id <= 3 {
		return []uint64{1, 2, 3}
	}
	return nil
}

func (c *cluster) propose(n *simNode) {
	if n.g.owner == 0 {
		return
	}
	c.next++
	size := 600
	if c.smallDisks() {
		size = 8000
	}
	body := make([]byte, 8+c.rng.IntN(size))
	binary.LittleEndian.PutUint64(body, c.next)
	before := uint64(0)
	if c.rng.IntN(4) == 0 {
		before = n.g.disk.base.index + c.rng.Uint64N(n.g.applied-n.g.disk.base.index+1)
	}
	if before > 0 && c.rng.IntN(4) == 0 {
		n.g.told = max(n.g.told, before)
		c.said = max(c.said, before)
		n.g.proposeTrim(before)
		c.counts["trims without an entry"]++
		c.after(n)
		return
	}
	if err := c.reserve(n, len(body)); err != nil {
		return
	}
	n.mine[c.next] = true
	n.g.told = max(n.g.told, before)
	c.said = max(c.said, before)
	if err := n.g.propose(bodyHeader{trim: before, at: c.now + n.skew + hook.Instant(n.offset)}, body); err != nil {
		delete(n.mine, c.next)
		return
	}
	n.begun = append(n.begun, begun{c.next, n.g.last(), n.g.owner})
	c.counts["proposals"]++
	c.after(n)
}

// owner returns the owner with the highest term, nil if none is up.
func (c *cluster) owner() (best *simNode) {
	for _, id := range c.ids() {
		if n := c.nodes[id]; n.up && n.g.owner > 0 && (best == nil || n.g.owner > best.g.owner) {
			best = n
		}
	}
	return best
}

// check checks that each node has each acknowledged entry that was not trimmed.
func (c *cluster) check() {
	for _, n := range c.members() {
		d := n.g.disk
		if d.base.index >= max(c.needed, c.said, first.index+1) {
			c.fail("node %d has trimmed through %d, and entries from %d on are needed", n.id, d.base.index, c.needed)
		}
		for id, index := range c.acked {
			if index <= d.base.index {
				continue
			}
			es, err := d.Entries(index, index+1, 1<<20)
			if err != nil || binary.LittleEndian.Uint64(es[0].GetData()[bodyHeaderSize:]) != id {
				c.fail("node %d does not have acknowledged proposal %d at %d: %v", n.id, id, index, err)
			}
		}
	}
}

// play plays a game, and returns the reason for which it failed; "" = it did not.
func play(seed uint64, steps int, f fault, counts map[string]int) (why string) {
	var c *cluster
	defer func() {
		if p := recover(); p != nil {
			why = fmt.Sprint(p)
		}
		if c != nil {
			c.close()
		}
	}()
	c = newCluster(seed, f, counts)
	for range steps {
		c.step()
	}
	c.calmDown = true
	c.settle()
	if !c.twoSmall() {
		c.check()
	}
	counts["acknowledged"] += len(c.acked)
	return ""
}
