package quorum

import "encoding/binary"

// Nodes learn with the next entry which of those before are not needed any more. If none follows, the owner says so alone: on a full disk
// nothing follows until those are gone.

// tell has the group tell other nodes what the owner of the shard has trimmed.
func (r *replica) tell() {
	if r.log != nil {
		r.group.told = max(r.group.told, r.log.trimmed.Load())
	}
}

// trimIdle tells the other nodes what the owner of the shard has trimmed, unless that is little, or the next entry is on its way.
func (r *replica) trimIdle() {
	if r.idle++; r.log == nil || len(r.pending)+len(r.held)+len(r.due) > 0 {
		r.idle = 0
		return
	}
	if before := r.log.trimmed.Load(); r.group.lacksTrim(before, r.idle > idleTicks) {
		r.group.proposeTrim(before)
	}
}

// idleTicks is after how many ticks without an entry the owner says what it has trimmed, be it little: the log of a node that has trimmed as it
// was told, because its disk was full, is whole from then on.
const idleTicks = 5 * electionTicks

// lacksTrim reports whether no entry has said that those before an index are not needed, and that should be said: there are many bytes of them,
// or there is nothing else to do.
func (g *group) lacksTrim(before uint64, idle bool) bool {
	d := g.disk
	return g.owner > 0 && before > max(g.head.trim, g.proposed.trim) && (idle || d.between(d.base.index, before-1) >= g.options.trimBytes)
}

// proposeTrim proposes an entry without a body, which says that the entries before an index are not needed any more. If it cannot now, or if
// the entry is lost, nothing has happened.
func (g *group) proposeTrim(before uint64) {
	if g.node.Propose(binary.LittleEndian.AppendUint64(nil, before)) == nil {
		g.proposed.raise(bodyHeader{trim: before})
	}
	g.collect()
}
