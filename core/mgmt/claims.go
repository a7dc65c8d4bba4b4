package mgmt

import (
	"net/http"
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
