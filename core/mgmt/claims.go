package mgmt

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// Two nodes claim a shard between the election of an owner and the moment in which the former one notices it, which takes seconds if that
// one was stopped or cut off. What is in the shard is taken from the part of the node with the latest term.

// withoutHeader names the shards whose vhosts are to be left out of a part, because another node's part has them.
const withoutHeader = "Curfew-Without-Shards"

// claim is a shard that a part is of, as its header has it: "3:17" is shard 3 in term 17.
type claim struct {
	shard string
	term  uint64 // 0 = unknown
}

func (c claim) String() string { return c.shard + ":" + strconv.FormatUint(c.term, 10) }

// claims returns the shards that the part is of.
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

// claimOf returns what the part claims of a shard.
func (p *part) claimOf(shard string) (c claim, claimed bool) {
	all := p.claims()
	i := slices.IndexFunc(all, func(c claim) bool { return c.shard == shard })
	if i < 0 {
		return claim{}, false
	}
	return all[i], true
}

// claimant returns the node whose part is believed about a shard: that with the latest term. Where terms do not tell, it is the one
// that this node takes for the owner.
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

// ownersOf returns whom this node takes for the owners of shards that have vhosts.
func (a *API) ownersOf() map[string]wlog.NodeID {
	owners := map[string]wlog.NodeID{}
	for _, name := range a.Placements.VHosts() {
		if shard, known := a.Placements.ShardOf(name); known {
			owners[strconv.Itoa(int(shard))], _ = a.Placements.OwnerOf(name)
		}
	}
	return owners
}

// settle asks nodes again whose parts add up what is in shards that are taken from other parts.
func (g *gathering) settle() {
	owners := g.api.ownersOf()
	var lost [][]string // by part
	conflict := false
	for i := range g.parts {
		var without []string
		for _, c := range g.parts[i].claims() {
			if g.claimant(c.shard, owners[c.shard]) != g.parts[i].node.ID {
				without = append(without, c.shard)
			}
		}
		lost, conflict = append(lost, without), conflict || len(without) > 0
	}
	if !conflict {
		return
	}
	var parts []part
	for i := range g.parts {
		p := &g.parts[i]
		switch {
		case len(lost[i]) == 0:
		case g.api.isSelf(&p.node):
			g.without = lost[i]
			*p = g.api.ownPart(g.without)
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
	if g.lost == nil {
		g.lost = map[string]string{}
	}
	g.lost[n.Name] = shards
	q := g.question
	q.headers = g.withLost(q.headers)
	parts, _ := g.askNodes([]replicas.Node{*n}, &q)
	if len(parts) == 0 {
		return nil
	}
	return &parts[0]
}

// withLost returns headers with those that leave out what is taken from other parts. headers may be nil.
func (g *gathering) withLost(headers func(node string) map[string]string) func(node string) map[string]string {
	return func(node string) map[string]string {
		h := map[string]string{}
		if headers != nil {
			maps.Copy(h, headers(node))
		}
		if shards, ok := g.lost[node]; ok {
			h[withoutHeader] = shards
		}
		return h
	}
}

// readWithout returns the shards whose vhosts a request for a part leaves out.
func readWithout(h http.Header) []string {
	if h.Get(withoutHeader) == "" {
		return nil
	}
	return strings.Split(h.Get(withoutHeader), ",")
}

// leavesOut returns a function that reports whether a vhost is in a shard that the request leaves out; nil means that none is.
func (c *request) leavesOut() func(*vhost.VHost) bool {
	out := c.without
	if len(out) == 0 {
		return nil
	}
	return func(v *vhost.VHost) bool {
		shard, known := c.api.Placements.ShardOf(v.Name())
		return known && slices.Contains(out, strconv.Itoa(int(shard)))
	}
}
