package mgmt

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// Two nodes claim a shard between the election of an owner and the moment at which the former owner notices it. That takes seconds if the
// former owner was stopped or cut off. The vhosts of the shard are then taken from the part of the node with the later term.

// withoutHeader names the shards whose vhosts a part is to leave out, because another node's part has them.
const withoutHeader = "Curfew-Without-Shards"

// claim is a shard in a part, and the term in which the part's node owns it. In a header, "3:17" is shard 3 in term 17.
type claim struct {
	shard string
	term  uint64 // 0 = unknown
}

func (c claim) String() string { return c.shard + ":" + strconv.FormatUint(c.term, 10) }

func (p *part) claims() (all []claim) {
	for text := range strings.SplitSeq(p.header.Get(shardsHeader), ",") {
		shard, term, _ := strings.Cut(text, ":")
		if shard == "" {
			continue
		}
		n, _ := strconv.ParseUint(term, 10, 64)
		all = append(all, claim{shard, n})
	}
	return all
}

func (p *part) claimOf(shard string) (c claim, claimed bool) {
	all := p.claims()
	i := slices.IndexFunc(all, func(c claim) bool { return c.shard == shard })
	if i < 0 {
		return claim{}, false
	}
	return all[i], true
}

// claimant returns the node with the best claim to a shard: the one with the latest term. If the terms are equal or unknown, it is the node
// that this node believes to be the owner.
func (g *gathering) claimant(shard string, owner wlog.NodeID) wlog.NodeID {
	var best wlog.NodeID
	var term uint64
	for i := range g.parts {
		id := g.parts[i].node.ID
		c, claimed := g.parts[i].claimOf(shard)
		switch {
		case !claimed, best != 0 && c.term < term:
		case best == 0, c.term > term, id == owner, best != owner && id < best:
			best, term = id, c.term
		}
	}
	return best
}

// ownersOf returns the nodes that this node believes to own the shards with vhosts.
func (ns *nodes) ownersOf() map[string]wlog.NodeID {
	owners := map[string]wlog.NodeID{}
	for _, name := range ns.placements.VHosts() {
		if shard, known := ns.placements.ShardOf(name); known {
			owners[strconv.Itoa(int(shard))], _ = ns.placements.OwnerOf(name)
		}
	}
	return owners
}

// lostBy returns the shards of a part that are taken from other parts.
func (g *gathering) lostBy(p *part) (shards []string) {
	owners := g.api.nodes.ownersOf()
	for _, c := range p.claims() {
		if g.claimant(c.shard, owners[c.shard]) != p.node.ID {
			shards = append(shards, c.shard)
		}
	}
	return shards
}

// settle asks a node for a new part if other parts have better claims to some of its shards. The new part leaves these shards out.
func (g *gathering) settle() {
	var lost [][]string // by part
	conflict := false
	for i := range g.parts {
		lost = append(lost, g.lostBy(&g.parts[i]))
		conflict = conflict || len(lost[i]) > 0
	}
	if !conflict {
		return
	}
	var parts []part
	for i := range g.parts {
		p := &g.parts[i]
		switch {
		case len(lost[i]) == 0:
		case g.api.nodes.isSelf(&p.node):
			g.without = lost[i]
			*p = g.api.nodes.ownPart(g.without)
		default:
			p = g.askWithout(&p.node, strings.Join(lost[i], ","))
		}
		if p == nil || p.status != http.StatusOK {
			g.missing = append(g.missing, g.parts[i].node.Name)
			continue
		}
		parts = append(parts, *p)
	}
	g.parts = parts
}

// askWithout asks a node for its part without some shards. It returns nil if there is no complete answer in time.
func (g *gathering) askWithout(n *replicas.Node, shards string) *part {
	if g.question.without == nil {
		g.question.without = map[string]string{}
	}
	g.question.without[n.Name] = shards
	parts, _ := g.api.nodes.askNodes(g.request, []replicas.Node{*n}, &g.question)
	if len(parts) == 0 {
		return nil
	}
	return &parts[0]
}

// readWithout returns the shards that a part leaves out at the asking node's request.
func readWithout(h http.Header) []string {
	if h.Get(withoutHeader) == "" {
		return nil
	}
	return strings.Split(h.Get(withoutHeader), ",")
}

// leavesOut reports whether a vhost is in a shard that the request leaves out.
func (c *request) leavesOut(v *vhost.VHost) bool { return c.api.nodes.isIn(c.without, v.Name()) }

// isIn reports whether a vhost is in one of some shards.
func (ns *nodes) isIn(shards []string, vhost string) bool {
	if len(shards) == 0 {
		return false
	}
	shard, known := ns.placements.ShardOf(vhost)
	return known && slices.Contains(shards, strconv.Itoa(int(shard)))
}

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
