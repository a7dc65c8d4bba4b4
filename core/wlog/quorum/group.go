package quorum

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// group is one node's replica of a shard: a state machine without a clock, goroutine or I/O. It belongs to one goroutine, which
// calls tick, hands it the messages of others, writes what nextWrite returns and sends what outbox returns.
//
// All that a node says to others about its log follows what it has written: a message that depends on a write is in the outbox only
// after written was called for that.
type group struct {
	id   uint64
	node *raft.RawNode
	disk *disk

	// committed is called with each committed entry behind those of earlier lives, in order. data is nil for an entry that only Raft
	// needs, and begins with a header.
	committed func(p position, data []byte)
	// restarted is called when the log goes on behind a position that the node has not got to: what it was told of is void.
	restarted func(p position)
	// timed is called with the time of the owner in a term, or less: that of entries which are about to be written, unless this node has
	// proposed them, and what other nodes know. nil = nobody wants to know.
	timed func(term uint64, at hook.Instant, by source)
	// known returns the time of the owner in the latest term that the node knows it of, or less; claim reports that it knows that from an
	// earlier life. The term is 0 if there is none; nil = so it is.
	known func() (term uint64, at hook.Instant, claim bool)

	out       []*raftpb.Message // to other nodes
	writes    []*raftpb.Message // to the disk, in order
	unwritten int               // bytes of the entries in writes
	noted     noted             // of the writes that nextWrite has returned
	time      kept              // what is to be written of the shard's time
	full      bool              // since there was space for a write with entries, one was refused
	told      uint64            // entries before it are not needed any more, as an owner has said
	spare     []byte            // for the data of the next write
	proposal  []byte            // for that of the next proposal
	reads     []raft.ReadState  // answers to read
	changing  uint64            // index of the last entry that changes the configuration
	applied   uint64            // index of the last entry that committed was called with, or that was applied in an earlier life
	body      uint64            // index of the last of those with a body; 0 = none is left
	head      bodyHeader        // the highest of those
	proposed  bodyHeader        // the highest of those that this node has proposed as owner
	pinned    int               // while it is not 0, no entry is trimmed
	options   options

	leader  uint64 // as far as this node knows; raft.None = nobody
	state   raft.StateType
	term    uint64
	owner   uint64         // the term that the node owns the shard in; 0 = it does not
	giving  uint64         // the latest term in which the node has begun to give the shard to another one, and has not failed to; 0 = none
	passive bool           // the node does not want to own the shard
	lends   bool           // a passive node leads where no other can, see lending
	lacking bool           // since a leader said something, a node that lacks entries has asked a passive one for its vote
	unheard int            // ticks since a leader said something, while the node is passive
	quiet   int            // ticks since a leader sent something that has the node wait longer for the next
	wary    map[uint64]int // ticks in which nodes that have declined the shard are not asked again
	rush    rush
}

// bodyHeader precedes the body of an entry of the shard. Later entries have no lower values.
//
//	trim u64 | time i64
type bodyHeader struct {
	trim uint64       // entries before that index are not needed any more
	at   hook.Instant // time of the shard when the entry was proposed
}

const bodyHeaderSize = 16

// trimSize is the size of an entry that has only the trim of a header. It has no body: only replicas learn of it.
const trimSize = 8

// trimOf returns what the data of an entry says of trims; 0 = nothing.
func trimOf(data []byte) uint64 {
	if len(data) != trimSize && len(data) < bodyHeaderSize {
		return 0
	}
	return binary.LittleEndian.Uint64(data)
}

func readBodyHeader(b []byte) bodyHeader {
	return bodyHeader{trim: binary.LittleEndian.Uint64(b), at: hook.Instant(binary.LittleEndian.Uint64(b[8:]))}
}

func (h bodyHeader) put(b []byte) {
	binary.LittleEndian.PutUint64(b, h.trim)
	binary.LittleEndian.PutUint64(b[8:], uint64(h.at))
}

// raise makes h the higher of both.
func (h *bodyHeader) raise(by bodyHeader) { h.trim, h.at = max(h.trim, by.trim), max(h.at, by.at) }

// maxEntryData is the maximum size of what Raft has as an entry.
const maxEntryData = MaxEntry + bodyHeaderSize

// options are a group's settings.
type options struct {
	id        uint64 // of the node; not 0
	election  int    // ticks without a leader until an election
	heartbeat int    // ticks between two heartbeats
	maxSize   uint64 // bytes of entries in one message to another node, about
	inflight  int    // messages with entries that a node has not answered
	trimEach  int    // entries that are trimmed at a time, at least, unless they have
	trimBytes int64  // as much as that
	first     int    // of the voters, in order, that should own the shard
	prompt    bool   // nodes are told at once what is committed
}

func newGroup(ctx context.Context, d *disk, o options, committed func(position, []byte), restarted func(position)) (*group, error) {
	applied := d.settled()
	node, err := raft.NewRawNode(&raft.Config{
		ID: o.id, ElectionTick: o.election, HeartbeatTick: o.heartbeat, Storage: d, Applied: applied,
		AsyncStorageWrites: true, MaxSizePerMsg: o.maxSize, MaxInflightMsgs: o.inflight, MaxInflightBytes: max(o.maxSize, maxInflightBytes),
		CheckQuorum: true, PreVote: true, StepDownOnRemoval: true,
		DisableProposalForwarding: true, // what a deposed owner has proposed does not get to its successor
		Logger:                    silent{},
	})
	if err != nil {
		return nil, err
	}
	g := &group{
		id: o.id, node: node, disk: d, options: o, committed: committed, restarted: restarted, applied: applied, term: d.hard.term,
		noted: noted{d.hard, d.time}, time: d.time,
	}
	for i, e := range d.entries {
		if e.typ != raftpb.EntryNormal {
			g.changing = d.base.index + 1 + uint64(i)
		}
	}
	g.body, g.head, err = d.lastBody(ctx, applied)
	return g, err
}

// start tells of what is committed already. It is called once, before everything else.
func (g *group) start() { g.collect() }

// errForgot says that the disk does not have what it had.
var errForgot = fmt.Errorf("%w: the disk has lost entries that this node has confirmed", wlog.ErrDamaged)

// step takes a message of another node. The group has ended if there is an error.
func (g *group) step(m *raftpb.Message) error {
	g.readStamp(m)
	switch m.GetType() {
	case raftpb.MsgHeartbeat:
		// What a leader says is committed here, this node has confirmed to it.
		if last := g.disk.last().index; m.GetTerm() >= g.term && m.GetCommit() > last {
			return fmt.Errorf("%w: the shard's owner knows it to have entry %d, and it ends with %d", errForgot, m.GetCommit(), last)
		}
	case raftpb.MsgApp:
		if g.unwritten > maxReceived && len(m.GetEntries()) > 0 {
			return nil // its sender repeats it
		}
	case raftpb.MsgReadIndex:
		if g.blind() {
			return nil // its sender repeats it
		}
	case raftpb.MsgTimeoutNow:
		if m.GetReject() {
			g.decline(m.GetFrom(), m.GetTerm())
			return nil
		}
		if g.passive {
			g.out = append(g.out, declining(m))
			return nil
		}
	case raftpb.MsgPreVote:
		g.lacking = g.lacking || g.lacks(m)
	case raftpb.MsgPreVoteResp:
		if g.passive && !g.lending() && !m.GetReject() {
			return nil // it does not become a candidate
		}
	default:
	}
	_ = g.node.Step(m) // it is about a proposal that was forwarded, or a node that is unknown: its sender finds out
	if m.GetType() == raftpb.MsgAppResp {
		g.collectAcked()
	} else {
		g.collect()
	}
	if m.GetFrom() == g.leader && m.GetTerm() == g.term {
		g.unheard, g.lacking = 0, false
		if t := m.GetType(); t == raftpb.MsgHeartbeat || t == raftpb.MsgApp {
			g.quiet = 0
		}
	}
	return nil
}

// delivered is told what became of an outgoing message that says where the log begins: its receiver gets nothing else until then.
func (g *group) delivered(m *raftpb.Message, ok bool) {
	if m.GetType() != raftpb.MsgSnap {
		return
	}
	how := raft.SnapshotFinish
	if !ok {
		how = raft.SnapshotFailure
	}
	g.node.ReportSnapshot(m.GetTo(), how)
	g.collect()
}

// propose proposes an entry: its header, and its body. It comes to committed, with the term that the group owns the shard in, if and only
// if it is committed; where it never does, the ownership ends. With errMoving nothing has happened.
func (g *group) propose(h bodyHeader, body []byte) error {
	if g.owner == 0 {
		return wlog.ErrNotOwner
	}
	g.proposed.raise(g.head)
	g.proposed.raise(h)
	switch err := g.node.Propose(g.entryOf(body)); {
	case err != nil && g.transferee() != raft.None:
		return errMoving
	case err != nil:
		return fmt.Errorf("%w: %w", wlog.ErrNotOwner, err)
	}
	g.collect()
	return nil
}

// entryOf returns an entry's data, until the next call: Raft copies it.
func (g *group) entryOf(body []byte) []byte {
	data := slices.Grow(g.proposal[:0], bodyHeaderSize+len(body))[:bodyHeaderSize]
	g.proposed.put(data)
	data = append(data, body...)
	if g.proposal = nil; cap(data) <= spareBytes {
		g.proposal = data
	}
	return data
}

// nothing proposes an entry without a body, and returns its index.
func (g *group) nothing() (uint64, error) {
	if g.owner == 0 {
		return 0, wlog.ErrNotOwner
	}
	if err := g.node.Propose(nil); err != nil {
		return 0, fmt.Errorf("%w: %w", wlog.ErrNotOwner, err)
	}
	g.collect()
	return g.last(), nil
}

// last returns the index of the last entry, which need not be on the disk.
func (g *group) last() uint64 {
	for _, m := range slices.Backward(g.writes) {
		if es := m.GetEntries(); len(es) > 0 {
			return es[len(es)-1].GetIndex()
		}
	}
	return g.disk.last().index
}

// change proposes another configuration. One change at a time is under way: it is an error to propose one meanwhile.
func (g *group) change(c *raftpb.ConfChangeV2) error {
	if g.owner == 0 {
		return wlog.ErrNotOwner
	}
	if err := g.node.ProposeConfChange(c); err != nil {
		return fmt.Errorf("%w: %w", wlog.ErrNotOwner, err)
	}
	g.collect()
	return nil
}

// outbox returns the messages to other nodes, in order.
func (g *group) outbox() []*raftpb.Message {
	out := g.out
	g.out = nil
	return out
}

// collect takes all that Raft wants done.
func (g *group) collect() { g.take(false) }

// collectAcked is collect when a node, or this one, has confirmed what it has written.
func (g *group) collectAcked() { g.take(true) }

func (g *group) take(acked bool) {
	for g.node.HasReady() {
		ready := g.node.Ready()
		g.reads = append(g.reads, ready.ReadStates...)
		if s := ready.SoftState; s != nil {
			g.leader, g.state = s.Lead, s.RaftState
		}
		if h := ready.HardState; !raft.IsEmptyHardState(h) {
			g.term = h.GetTerm()
		}
		for _, m := range ready.Messages {
			switch m.GetTo() {
			case raft.LocalAppendThread:
				g.note(m)
				g.queue(m)
			case raft.LocalApplyThread:
				g.apply(m.GetEntries())
				g.answer(m.GetResponses())
			default:
				if acked && g.idle(m) {
					continue
				}
				welcome(m)
				g.stamp(m)
				g.out = append(g.out, m)
			}
		}
	}
	g.updateOwner()
}

// note notes the last entry that changes the configuration, and tells of the time of the last one with a body.
func (g *group) note(m *raftpb.Message) {
	var last *raftpb.Entry
	for _, e := range m.GetEntries() {
		if e.GetType() != raftpb.EntryNormal {
			g.changing = e.GetIndex()
		} else if len(e.GetData()) >= bodyHeaderSize {
			last = e
		}
	}
	if last != nil && last.GetTerm() != g.owner && g.timed != nil {
		g.timed(last.GetTerm(), readBodyHeader(last.GetData()).at, told)
	}
}

// idle reports whether a message says no more than what is committed now, to a node that learns it soon enough with the next entries, or
// with a heartbeat. Under load each batch of entries would cost each node a second message, and its answer. A node that has been removed
// must be told at once, because it gets no others.
func (g *group) idle(m *raftpb.Message) (is bool) {
	if g.options.prompt || m.GetType() != raftpb.MsgApp || len(m.GetEntries()) > 0 || g.applied < g.changing {
		return false
	}
	g.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		is = is || id == m.GetTo() && p.State == tracker.StateReplicate // others are being asked what they have
	})
	return is
}

// welcome has a message that says where the log begins name its receiver as a learner, if the configuration of that point does not know
// it: a node ignores a beginning without it. Entries behind that point add it, which it finds done.
func welcome(m *raftpb.Message) {
	if m.GetType() != raftpb.MsgSnap {
		return
	}
	meta := m.GetSnapshot().GetMetadata()
	c := meta.GetConfState()
	for _, known := range [...][]uint64{c.GetVoters(), c.GetLearners(), c.GetVotersOutgoing(), c.GetLearnersNext()} {
		if slices.Contains(known, m.GetTo()) {
			return
		}
	}
	c = proto.Clone(c).(*raftpb.ConfState)
	c.Learners = append(c.GetLearners(), m.GetTo())
	m.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: meta.Index, Term: meta.Term, ConfState: c}}
}

func payload(m *raftpb.Message) (size int) {
	for _, e := range m.GetEntries() {
		size += len(e.GetData())
	}
	return size
}

// updateOwner notes whether the node owns the shard: it leads, and has applied an entry of its term. What it has not applied then is
// of its own term. A node that does not want to own the shard may lead, but does not own it.
func (g *group) updateOwner() {
	if g.state != raft.StateLeader || g.owner != g.term {
		g.owner, g.proposed = 0, bodyHeader{}
	}
	if g.state != raft.StateLeader || g.passive && g.owner == 0 {
		return
	}
	if t, err := g.disk.Term(g.applied); err == nil && t == g.term {
		g.owner = g.term
	}
}

// answer delivers messages that waited for something.
func (g *group) answer(ms []*raftpb.Message) {
	for _, m := range ms {
		if m.GetTo() == g.id {
			_ = g.node.Step(m)
		} else {
			g.stamp(m)
			g.out = append(g.out, m)
		}
	}
}

func (g *group) apply(es []*raftpb.Entry) {
	for _, e := range es {
		g.applied = e.GetIndex()
		p := position{e.GetIndex(), e.GetTerm()}
		switch e.GetType() {
		case raftpb.EntryConfChangeV2:
			c := &raftpb.ConfChangeV2{}
			if err := proto.Unmarshal(e.GetData(), c); err != nil {
				panic(fmt.Sprintf("entry %d is no configuration: %v", p.index, err)) // it passed a checksum
			}
			g.disk.reconfigured(p.index, g.node.ApplyConfChange(c))
		case raftpb.EntryConfChange:
			panic("configurations are changed by others") // the group proposes none of that kind
		case raftpb.EntryNormal:
			if data := e.GetData(); len(data) >= bodyHeaderSize {
				g.body = p.index
				g.raise(p.index, data)
				g.committed(p, data)
				continue
			} else if len(data) == trimSize {
				g.head.raise(bodyHeader{trim: min(binary.LittleEndian.Uint64(data), p.index)})
			}
		}
		g.committed(p, nil)
	}
}

// raise takes note of the header of an entry that was applied.
func (g *group) raise(index uint64, data []byte) {
	h := readBodyHeader(data)
	h.trim = min(h.trim, index)
	g.head.raise(h)
}

// blind reports whether the node leads without knowing yet which entries are durable, and Raft would answer with those that it knows: it
// does so where a single node votes. With more it waits for an entry of its own term.
func (g *group) blind() bool {
	return g.state == raft.StateLeader && g.owner == 0 && len(g.disk.configurationAt(g.applied).GetVoters()) == 1
}

// durable returns the index of the last entry that a majority has on its disks, of which this node need not be one; 0 unless it owns the shard.
func (g *group) durable() uint64 {
	if g.owner == 0 {
		return 0
	}
	return g.node.BasicStatus().GetCommit()
}

// read asks the owner which entries are durable. The answer is in reads, with id, unless a message is lost.
func (g *group) read(id []byte) {
	if g.blind() {
		return // as if a message was lost
	}
	g.node.ReadIndex(id)
	g.collect()
}
