package quorum

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

// An owner must not fill the disks of a majority with entries that bring data. If it did, entries that free space could not be confirmed,
// and the disks would stay full. An example: nodes A, B and C, and A owns the shard. If B and C have space only for Settling entries, A
// refuses publishes, and still confirms acknowledgements with the reserve of B and C. If only C is full, A goes on with B.
//
// The owner checks its own disk before it proposes an entry, see reserve. The other nodes state with each answer to the owner for which
// purposes their disks have space.

// taker is a local log that knows for which purposes it has space.
type taker interface {
	// Takes returns the first purpose for which there is space. It does not wait for the disk.
	Takes() wlog.Purpose
}

// saysSpace reports whether messages of a type state the space of their sender.
func saysSpace(t raftpb.MessageType) bool {
	return t == raftpb.MsgAppResp || t == raftpb.MsgHeartbeatResp
}

// takes returns the first purpose for which the local log has space.
func (r *replica) takes() wlog.Purpose {
	if l, ok := r.disk.log.(taker); ok {
		return l.Takes()
	}
	return wlog.Bringing
}

// spaces are the last statements of other nodes about the space on their disks, to the owner of the shard. They belong to run.
type spaces map[uint64]space

type space struct {
	takes wlog.Purpose
	heard int // ticks since the last statement
}

// hear notes the answer of a node, and reports whether anything has changed since it was last heard.
func (s spaces) hear(from uint64, takes wlog.Purpose) (changed bool) {
	is, known := s[from]
	if known && is == (space{takes: takes}) {
		return false
	}
	s[from] = space{takes: takes}
	return true
}

// heard reports whether the node has answered within the last election timeout. Raft's own mark begins anew with each election timeout, so
// that it is missing until the next heartbeat.
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

// least returns the first purpose for which a majority of the voters has space. The node itself counts as having space. A node that is
// silent for an election timeout counts as full, unless so many are silent that no majority could confirm anything.
func (s spaces) least(voters []uint64, self uint64) wlog.Purpose {
	var all []wlog.Purpose
	heard := 0
	for _, id := range voters {
		is, known := s[id]
		switch {
		case id == self:
			all = append(all, wlog.Bringing)
		case known && is.heard > electionTicks:
			all = append(all, wlog.Trimming)
			continue
		default:
			all = append(all, is.takes)
		}
		heard++
	}
	if heard <= len(voters)/2 {
		return wlog.Bringing
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// weigh stores the first purpose for which a majority has space. It is called when that may have changed.
func (r *replica) weigh() {
	least := wlog.Bringing
	if r.group.owner > 0 {
		c := r.group.disk.configurationAt(r.group.applied)
		for _, voters := range [...][]uint64{c.GetVoters(), c.GetVotersOutgoing()} {
			if len(voters) > 0 {
				least = max(least, r.spaces.least(voters, r.group.id))
			}
		}
	} else {
		clear(r.spaces)
	}
	r.least.Store(uint32(least))
}
