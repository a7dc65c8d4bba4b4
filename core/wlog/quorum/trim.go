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
	if r.log == nil || len(r.pending)+len(r.held)+len(r.due) > 0 {
		return
	}
	if before := r.log.trimmed.Load(); r.group.lacksTrim(before) {
		r.group.proposeTrim(before)
	}
}

// lacksTrim reports whether many bytes are there that nobody needs if those are the entries before an index, and that no entry has said so.
func (g *group) lacksTrim(before uint64) bool {
	d := g.disk
	return g.owner > 0 && before > max(g.head.trim, g.proposed.trim) && d.between(d.base.index, before-1) >= g.options.trimBytes
}

// proposeTrim proposes an entry without a body, which says that the entries before an index are not needed any more. If it cannot now, or if
// the entry is lost, nothing has happened.
func (g *group) proposeTrim(before uint64) {
	if g.node.Propose(binary.LittleEndian.AppendUint64(nil, before)) == nil {
		g.proposed.raise(bodyHeader{trim: before})
	}
	g.collect()
}
