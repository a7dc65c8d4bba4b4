package quorum

import "encoding/binary"

// Each entry states the index before which no entry is needed. If no entry follows, the owner states the index in an entry of its own. On a
// full disk such an entry is necessary: no other entry fits before the log is trimmed.

// tell passes the owner's trim to the group, which stamps messages with it.
func (r *replica) tell() {
	if r.log != nil {
		r.group.told = max(r.group.told, r.log.trimmed.Load())
	}
}

// trimIdle proposes the owner's trim as an entry of its own, unless an entry is on its way or the trim would free little.
func (r *replica) trimIdle() {
	if r.idle++; r.log == nil || len(r.pending)+len(r.held)+len(r.due) > 0 {
		r.idle = 0
		return
	}
	if before := r.log.trimmed.Load(); r.group.lacksTrim(before, r.idle > idleTicks) {
		r.group.proposeTrim(before)
	}
}

// idleTicks is after how many ticks without an entry the owner proposes its trim, however little it frees. From then on the log of a node
// that has trimmed by a stamp, because its disk was full, is complete.
const idleTicks = 5 * electionTicks

// lacksTrim reports whether the trim should be proposed: no entry has stated it yet, and it frees many bytes or the shard is idle.
func (g *group) lacksTrim(before uint64, idle bool) bool {
	d := g.disk
	return g.owner > 0 && before > max(g.head.trim, g.proposed.trim) && (idle || d.between(d.base.index, before-1) >= g.options.trimBytes)
}

// proposeTrim proposes an entry without a body that states a trim. If Raft refuses or loses the entry, nothing has happened.
func (g *group) proposeTrim(before uint64) {
	if g.node.Propose(binary.LittleEndian.AppendUint64(nil, before)) == nil {
		g.proposed.raise(bodyHeader{trim: before})
	}
	g.collect()
}
