package mgmt

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/replicas"
)

// While no node serves a vhost, its contents are missing in the answers of all nodes: the vhost has no owner, or its owner still reads its
// log or is away. While a node that was stopped still believes to be the owner, the contents would be in two parts. So each part names the
// shards that it has, and the answer names the vhosts that it lacks.

const (
	// missingHeader names the vhosts that the answer lacks, escaped as in a path, at most maxNamed of them.
	missingHeader = "Curfew-Missing-Vhosts"
	maxNamed      = 50
)

// Headers of parts.
const (
	shardsHeader = "Curfew-Shards"        // shards of the vhosts at the node, with the terms in which it owns them
	absentHeader = "Curfew-Absent-Vhosts" // vhosts of these shards that are not at the node, escaped
)

// noteServed names, in the header of a part, the vhosts that it has. The shards in without are left out.
func (ns *nodes) noteServed(h http.Header, without []string) {
	self, _ := ns.member(ns.self)
	terms := map[uint32]uint64{}
	for _, s := range ns.view().Shards {
		if s.Role == replicas.Owner { // otherwise it is the term of another one
			terms[s.Shard] = s.Term
		}
	}
	var shards, absent []string
	for _, name := range ns.placements.VHosts() {
		shard, known := ns.placements.ShardOf(name)
		number := strconv.Itoa(int(shard))
		if owner, _ := ns.placements.OwnerOf(name); !known || owner != self.ID || slices.Contains(without, number) {
			continue
		}
		if text := (claim{number, terms[shard]}).String(); !slices.Contains(shards, text) {
			shards = append(shards, text)
		}
		if _, there := ns.store.VHost(name); !there {
			absent = append(absent, url.PathEscape(name))
		}
	}
	h.Set(shardsHeader, strings.Join(shards, ","))
	if len(absent) > 0 {
		h.Set(absentHeader, strings.Join(absent, ","))
	}
}

// ownPart returns a part that only names the vhosts at this node. The shards in without are left out.
func (ns *nodes) ownPart(without []string) part {
	p := part{status: http.StatusOK, header: http.Header{}}
	p.node, _ = ns.member(ns.self)
	ns.noteServed(p.header, without)
	return p
}

func (p *part) has(shard string) bool {
	_, claimed := p.claimOf(shard)
	return claimed
}

// findUnserved finds the vhosts that the user may see and that no part has.
func (g *gathering) findUnserved() {
	absent := map[string]bool{}
	for i := range g.parts {
		for escaped := range strings.SplitSeq(g.parts[i].header.Get(absentHeader), ",") {
			if name, err := url.PathUnescape(escaped); err == nil && name != "" {
				absent[name] = true
			}
		}
	}
	for _, name := range g.api.nodes.placements.VHosts() {
		shard, _ := g.api.nodes.placements.ShardOf(name)
		text := strconv.Itoa(int(shard))
		served := !absent[name] && slices.ContainsFunc(g.parts, func(p part) bool { return p.has(text) })
		if !served && !slices.Contains(g.unserved, name) && (isMonitor(g.user) || g.mayEnter(name)) {
			g.unserved = append(g.unserved, name)
		}
	}
}

// checkServed finds the unserved vhosts, and refuses a list that would lack them all: it would be empty, and most clients read no header.
func (g *gathering) checkServed() error {
	g.findUnserved()
	visible := func(name string) bool { return isMonitor(g.user) || g.mayEnter(name) }
	if len(g.unserved) == 0 || slices.ContainsFunc(g.api.nodes.placements.VHosts(), func(name string) bool { return visible(name) && !slices.Contains(g.unserved, name) }) {
		return nil
	}
	g.mark()
	if owner, _ := g.api.nodes.placements.OwnerOf(g.unserved[0]); owner != 0 && len(g.missing) > 0 {
		g.w.Header().Set("Retry-After", "1")
		return g.errUnreachable(g.missing, "; without that the list would lack "+vhostText(g.unserved[0]))
	}
	return g.errUnowned(vhostText(g.unserved[0]))
}

// markUnserved says in the header which vhosts are not in the answer.
func (g *gathering) markUnserved() {
	if len(g.unserved) == 0 {
		return
	}
	names := make([]string, 0, maxNamed)
	for _, name := range g.unserved[:min(len(g.unserved), maxNamed)] {
		names = append(names, url.PathEscape(name))
	}
	g.w.Header().Set(missingHeader, joinNames(names))
}
