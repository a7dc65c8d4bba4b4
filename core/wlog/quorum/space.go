package quorum

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

// An owner must not have the disks of a majority filled with what brings more: what settles could not be confirmed any more, and so nothing would
// get free again. It asks its own disk before it proposes an entry, see reserve. The others' nodes say for which purposes theirs have space, with
// each answer to it.

// taker is a local log that knows for which purposes it has space.
type taker interface {
	// Takes returns the first purpose for which there is space. It does not wait for the disk.
	Takes() wlog.Purpose
}

// saysSpace reports whether messages of a type say for which purposes their sender has space.
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

// spaces are the other nodes' disks, as far as they have said, to the owner of the shard. They belong to run.
type spaces map[uint64]space

type space struct {
	takes wlog.Purpose
	heard int // ticks since
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

// least returns the first purpose for which a majority of the voters has space, besides the node itself. Of one that is not heard that is not
// known: it counts as full, unless too many are not heard for anything to be confirmed.
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

// weigh notes for which purposes a majority has space. It is called when that may have changed.
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
