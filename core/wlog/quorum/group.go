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

// group is one node's replica of a shard: a state machine without a clock, goroutine or I/O. It belongs to one goroutine, which calls tick,
// passes in the messages of other nodes, writes the results of nextWrite and sends the results of outbox.
//
// A node sends nothing about its log before it has written that part of the log: a message that depends on a write reaches the outbox only
// after written was called for the write.
type group struct {
	id   uint64
	node *raft.RawNode
	disk *disk

	// committed is called with each committed entry behind those of earlier lives, in order. data is nil for an entry that only Raft needs;
	// otherwise it begins with a header.
	committed func(p position, data []byte)
	// restarted is called when the log goes on behind a position that the node has not
	// reached. State built from earlier entries is void then.
	restarted func(p position)
	// timed is called with a lower bound of the time of a term's owner, from an entry that is about to be written (unless this node has
	// proposed it), or from another node. nil = it is not called.
	timed func(term uint64, at hook.Instant, by source)
	// known returns a lower bound of the time of the owner in the latest term of which this
	// node knows the time; claim reports that it knows it from an earlier life. Term 0 = it
	// knows none; a nil function means the same.
	known func() (term uint64, at hook.Instant, claim bool)

	out       []*raftpb.Message // to other nodes
	writes    []*raftpb.Message // to the disk, in order
	unwritten int               // bytes of the entries in writes
	noted     noted             // of the writes that nextWrite has returned
	time      kept              // the shard's time as it is to be written
	full      bool              // the disk has refused a write, and since then has taken only writes that free space
	told      uint64            // an owner has said that no entry before this one is needed
	spare     []byte            // memory for the next write
	proposal  []byte            // memory for the next proposal
	reads     []raft.ReadState  // answers to read
	changing  uint64            // index of the last entry that changes the configuration
	applied   uint64            // last entry that was applied, in this life or an earlier one
	body      uint64            // last applied entry with a body; 0 = none is left
	head      bodyHeader        // the highest values in applied entries
	proposed  bodyHeader        // the highest values that this node has proposed as owner
	pinned    int               // replays in progress, during which no entry is trimmed
	options   options

	leader  uint64 // as far as this node knows; raft.None = there is none
	state   raft.StateType
	term    uint64
	owner   uint64         // the term in which the node owns the shard; 0 = it does not
	giving  uint64         // the latest term in which the node has begun to transfer the shard, and has not failed; 0 = none
	passive bool           // the node does not want to own the shard
	lends   bool           // a passive node leads where no other can, see lending
	lacking bool           // since the last message of a leader, a node that lacks entries has asked this passive one for a vote
	unheard int            // ticks since the last message of a leader, while the node is passive
	quiet   int            // ticks since the last message of a leader that restarts the election timeout
	wary    map[uint64]int // nodes that have declined the shard, with the ticks until they are asked again
	rush    rush
}

// bodyHeader precedes the body of an entry of the shard. Its values never fall from entry to entry.
type bodyHeader struct {
	trim uint64       // no entry before that index is needed
	at   hook.Instant // time of the shard when the entry was proposed
}

const bodyHeaderSize = 16

// trimSize is the size of an entry that has only the trim of a header. Such an entry has no body, and only replicas see it.
const trimSize = 8

// trimOf returns the trim in the data of an entry; 0 = none.
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

// raise makes each value of h the higher of both.
func (h *bodyHeader) raise(by bodyHeader) { h.trim, h.at = max(h.trim, by.trim), max(h.at, by.at) }

// maxEntryData is the maximum size of an entry of Raft.
const maxEntryData = MaxEntry + bodyHeaderSize

// options are a group's settings.
type options struct {
	id        uint64 // of the node; not 0
	election  int    // ticks without a leader until an election
	heartbeat int    // ticks between two heartbeats
	maxSize   uint64 // bytes of entries in a message to another node, about
	inflight  int    // unanswered messages with entries to a node
	trimEach  int    // a trim removes at least so many entries,
	trimBytes int64  // or entries of at least so many bytes
	first     int    // place among the sorted voters of the one that should own the shard
	prompt    bool   // the owner announces each commit at once
}

func newGroup(ctx context.Context, d *disk, o options, committed func(position, []byte), restarted func(position)) (*group, error) {
	applied := d.settled()
	node, err := raft.NewRawNode(&raft.Config{
		ID: o.id, ElectionTick: o.election, HeartbeatTick: o.heartbeat, Storage: d, Applied: applied,
		AsyncStorageWrites: true, MaxSizePerMsg: o.maxSize, MaxInflightMsgs: o.inflight, MaxInflightBytes: max(o.maxSize, maxInflightBytes),
		CheckQuorum: true, PreVote: true, StepDownOnRemoval: true,
		DisableProposalForwarding: true, // a deposed owner's proposals must not reach its successor
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

// start applies the entries that are already committed. It is called once, before all other methods.
func (g *group) start() { g.collect() }

// errForgot says that the disk lacks entries that it had.
var errForgot = fmt.Errorf("%w: the disk has lost entries that this node has confirmed", wlog.ErrDamaged)

// step processes a message of another node. After an error the group has ended.
func (g *group) step(m *raftpb.Message) error {
	g.readStamp(m)
	switch m.GetType() {
	case raftpb.MsgHeartbeat:
		// A heartbeat names as committed only entries that this node has confirmed to the leader.
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
			return nil // a passive node does not become a candidate
		}
	default:
	}
	_ = g.node.Step(m) // fails for a forwarded proposal or an unknown node: the sender finds out by itself
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

// delivered reports to Raft whether an outgoing message that states where the log begins has arrived. Raft sends the receiver nothing else
// until then.
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

// propose proposes an entry, its header and its body. If the entry is committed, and only then, committed is called with it and with the
// term in which the group owns the shard; if it never is, the ownership ends. With errMoving nothing has happened.
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

// entryOf returns an entry's data, which is valid until the next call: Raft copies it.
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

// last returns the index of the last entry, which may not be on the disk yet.
func (g *group) last() uint64 {
	for _, m := range slices.Backward(g.writes) {
		if es := m.GetEntries(); len(es) > 0 {
			return es[len(es)-1].GetIndex()
		}
	}
	return g.disk.last().index
}

// change proposes another configuration. It fails while an earlier change is under way.
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

// collect carries out everything that Raft wants done.
func (g *group) collect() { g.take(false) }

// collectAcked is collect after this node or another one has confirmed its writes.
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

// note notes the last entry in m that changes the configuration, and calls timed with the time in the last entry that has a body.
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

// idle reports whether a message only announces a commit. Such a message is left out, because the receiver learns of the commit soon enough
// with the next entries or a heartbeat; under load each batch would otherwise cost each node a second message and its answer. The message
// is sent while a change of the configuration is applied, because a node that was removed gets no later message.
func (g *group) idle(m *raftpb.Message) (is bool) {
	if g.options.prompt || m.GetType() != raftpb.MsgApp || len(m.GetEntries()) > 0 || g.applied < g.changing {
		return false
	}
	g.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		is = is || id == m.GetTo() && p.State == tracker.StateReplicate // Raft still probes the log of a node in another state
	})
	return is
}

// welcome makes a message that states where the log begins name its receiver as a learner, unless the configuration of that point knows the
// receiver. Otherwise the receiver would ignore the beginning. The later entry that adds the receiver changes nothing then.
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

// updateOwner notes whether the node owns the shard: it leads, and has applied an entry of its own term, so that all later entries are its
// own. A passive node may lead, but does not become the owner.
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

// answer delivers messages that have waited for a write or for entries to be applied.
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
			panic("configurations are changed by others") // no group proposes this kind
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

// raise takes over the header of an applied entry.
func (g *group) raise(index uint64, data []byte) {
	h := readBodyHeader(data)
	h.trim = min(h.trim, index)
	g.head.raise(h)
}

// blind reports whether the node leads, does not know yet which entries are durable, and Raft would nevertheless answer reads with those
// that it knows. Raft does so where a single node votes; with more voters it waits for an entry of the leader's own term.
func (g *group) blind() bool {
	return g.state == raft.StateLeader && g.owner == 0 && len(g.disk.configurationAt(g.applied).GetVoters()) == 1
}

// durable returns the index of the last entry that a majority has on its disks, whether or not this node has it; 0 = the node does not own
// the shard.
func (g *group) durable() uint64 {
	if g.owner == 0 {
		return 0
	}
	return g.node.BasicStatus().GetCommit()
}

// read asks the owner which entries are durable. The answer comes to reads, with id, unless a message is lost.
func (g *group) read(id []byte) {
	if g.blind() {
		return // as if a message was lost
	}
	g.node.ReadIndex(id)
	g.collect()
}
