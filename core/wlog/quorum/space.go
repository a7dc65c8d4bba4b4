package quorum

import (
	"encoding/binary"
	"math"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

// An owner must not fill the disks of a majority with entries that bring data. If it did,
// entries that free space could not be confirmed, and the disks would stay full. An
// example: nodes A, B and C, and A owns the shard. If B and C have space only for Settling
// entries, A refuses publishes, and still confirms acknowledgements with the reserve of B
// and C. If only C is full, A goes on with B.
//
// The owner checks its own disk before it proposes an entry, see reserve. The other nodes
// state with each answer to the owner for which purposes their disks have space, and how
// many bytes their logs can still take, their room. The room of the shard is what this node
// and a majority can take, so the journal above leaves the same reserve on the disks of a
// majority as on the owner's. An example: A has a disk of 400 MiB, B and C have 200 MiB
// each. When B and C have 40 MiB left, publishers wait, although A has 240 MiB. Without the
// room they waited only once B and C refused entries that bring data. By then entries of 2
// MB were on their way for which B and C had no space, the acknowledgements waited behind
// them, and the disks stayed full.

// taker is a local log that knows for which purposes it has space.
type taker interface {
	// Takes returns the first purpose for which there is space. It does not wait for the disk.
	Takes() wlog.Purpose
}

// plenty is the room of a node that has not stated it, because its version is too old.
const plenty = math.MaxInt64 / 2

// saysSpace reports whether messages of a type state the space of their sender.
func saysSpace(t raftpb.MessageType) bool {
	return t == raftpb.MsgAppResp || t == raftpb.MsgHeartbeatResp
}

// space returns the space that the local log has, as of the last write or look.
func (r *replica) space() space {
	s := space{room: r.localRoom.Load()}
	if l, ok := r.disk.log.(taker); ok {
		s.takes = l.Takes()
	}
	return s
}

// roomStep is the unit to which statements of the room are rounded down, so that most of
// them repeat the one before.
const roomStep = 64 << 10

// littleRoom is the room below which an idle replica looks at it once in an election
// timeout, because other logs or programs may have made space, or taken it.
const littleRoom = 1 << 30

// looksDue counts a tick, and reports whether the room is to be looked at.
func (r *replica) looksDue() bool {
	r.unlooked++
	return r.unlooked >= electionTicks && r.localRoom.Load() < littleRoom
}

// spaces are the last statements of other nodes about the space on their disks, to the
// owner of the shard. They belong to run.
type spaces map[uint64]space

type space struct {
	takes wlog.Purpose // the first purpose for which there is space
	room  int64        // bytes that the log can still take
	heard int          // ticks since the last statement
}

// hear notes the answer of a node, and reports whether anything has changed since it was last heard.
func (s spaces) hear(from uint64, states space) (changed bool) {
	is, known := s[from]
	if known && is == states {
		return false
	}
	s[from] = states
	return true
}

// heard reports whether the node has answered within the last election timeout. Raft's own
// mark is cleared at each election timeout, and is missing until the node answers the next
// heartbeat.
func (s spaces) heard(id uint64) bool {
	is, known := s[id]
	return known && is.heard <= electionTicks
}

func (s spaces) tick() {
	for id, is := range s {
		is.heard++
		s[id] = is
	}
}

// ofMajority returns the space that a majority of the voters has: the first purpose, and
// the room. The node itself counts as having space. A node that is silent for an election
// timeout counts as full, unless so many are silent that no majority could confirm
// anything.
func (s spaces) ofMajority(voters []uint64, self uint64) space {
	var purposes []wlog.Purpose
	var rooms []int64
	heard := 0
	for _, id := range voters {
		is, known := s[id]
		switch {
		case id == self, !known:
			is = space{room: plenty}
		case is.heard > electionTicks:
			is = space{takes: wlog.Trimming}
			heard--
		}
		heard++
		purposes, rooms = append(purposes, is.takes), append(rooms, is.room)
	}
	if heard <= len(voters)/2 {
		return space{room: plenty}
	}
	slices.Sort(purposes)
	slices.Sort(rooms)
	return space{takes: purposes[len(voters)/2], room: rooms[(len(voters)-1)/2]}
}

// weigh stores the space that a majority has. It is called when that may have changed.
func (r *replica) weigh() {
	all := space{room: plenty}
	if r.group.owner > 0 {
		c := r.group.disk.configurationAt(r.group.applied)
		for _, voters := range [...][]uint64{c.GetVoters(), c.GetVotersOutgoing()} {
			if len(voters) > 0 {
				s := r.spaces.ofMajority(voters, r.group.id)
				all.takes, all.room = max(all.takes, s.takes), min(all.room, s.room)
			}
		}
	} else {
		clear(r.spaces)
	}
	r.least.Store(uint32(all.takes))
	r.room.Store(all.room)
}

// Each entry states the index before which no entry is needed. If no entry follows, the
// owner states the index in an entry of its own. On a full disk such an entry is necessary:
// no other entry fits before the log is trimmed.

// tell passes the owner's trim to the group, which stamps messages with it.
func (r *replica) tell() {
	if r.log != nil {
		r.group.told = max(r.group.told, r.log.trimmed.Load())
	}
}

// trimIdle proposes the owner's trim as an entry of its own, unless an entry is on its way
// or the trim would free little.
func (r *replica) trimIdle() {
	if r.idle++; r.log == nil || len(r.pending)+len(r.held)+len(r.due) > 0 {
		r.idle = 0
		return
	}
	if before := r.log.trimmed.Load(); r.group.lacksTrim(before, r.idle > idleTicks) {
		r.group.proposeTrim(before)
	}
}

// idleTicks is after how many ticks without an entry the owner proposes its trim, however
// little it frees. From then on the log of a node that has trimmed by a stamp, because its
// disk was full, is complete.
const idleTicks = 5 * electionTicks

// lacksTrim reports whether the trim should be proposed: no entry has stated it yet, and it
// frees many bytes or the shard is idle.
func (g *group) lacksTrim(before uint64, idle bool) bool {
	d := g.disk
	return g.owner > 0 && before > max(g.head.trim, g.proposed.trim) && (idle || d.between(d.base.index, before-1) >= g.options.trimBytes)
}

// proposeTrim proposes an entry without a body that states a trim. If Raft refuses or loses
// the entry, nothing has happened.
func (g *group) proposeTrim(before uint64) {
	if g.node.Propose(binary.LittleEndian.AppendUint64(nil, before)) == nil {
		g.proposed.raise(bodyHeader{trim: before})
	}
	g.collect()
}
