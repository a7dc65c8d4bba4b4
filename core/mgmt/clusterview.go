package mgmt

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/wlog"
)

// clusterHandlers show the cluster, transfer shards and replace nodes.
type clusterHandlers struct {
	nodes *nodes
	log   *slog.Logger
}

// describe shows a broker that is alone. In a cluster, it answers with this node's part of [viewed].
func (a *clusterHandlers) describe(c *request) error {
	if c.part {
		return a.sendView(c)
	}
	return c.reply(object{
		{"name", a.nodes.clusterName()},
		{"node", a.nodes.self},
		{"clustered", false},
		{"registrar", nil},
		{"nodes", []object{append(object{{"name", a.nodes.self}, {"number", "0"}, {"address", ""}, {"running", true}, {"links", []object{}}}, relayedMembers(&replicas.Relayed{})...)}},
		{"shards", []object{}},
		{"applicants", []object{}},
	})
}

// view returns the cluster as this node knows it.
func (ns *nodes) view() replicas.View { return ns.replicas.View() }

// sendView answers another node with this node's view.
func (a *clusterHandlers) sendView(c *request) error {
	b, err := json.Marshal(a.nodes.view())
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/json")
	_, _ = c.w.Write(b) // if the other node is gone, the server notices
	return nil
}

// viewed is the scope of answers that are made of the views of all nodes.
var viewed = together("all nodes, merged", unchangedPart, func(c *request, _ *endpoint) error {
	g, err := c.api.nodes.gather(c, question{})
	if err != nil {
		return err
	}
	views := g.views()
	g.mark()
	return c.reply(c.api.cluster.object(views, g.missing))
})

// views returns the views of all nodes. The sender of a view is its Self, even if the view
// names another node.
func (g *gathering) views() (all []replicas.View) {
	for i := range g.parts {
		var v replicas.View
		p := &g.parts[i]
		if g.api.nodes.isSelf(&p.node) {
			v = g.api.nodes.view()
		} else if err := json.Unmarshal(p.body, &v); err != nil {
			g.drop(p.node, err)
			continue
		}
		v.Self = p.node.ID
		all = append(all, v)
	}
	return all
}

// object shows the cluster as its nodes know it.
func (a *clusterHandlers) object(views []replicas.View, missing []string) object {
	nodes := []object{}
	for _, n := range a.nodes.members() {
		nodes = append(nodes, a.memberObject(&n, views))
	}
	o := object{
		{"name", a.nodes.clusterName()},
		{"node", a.nodes.self},
		{"clustered", true},
		{"registrar", a.nodes.nodeName(a.nodes.placements.Registrar())},
		{"nodes", nodes},
		{"shards", a.shardObjects(views)},
		{"applicants", applicants(views)},
		{"log_format", formatOrNull(a.nodes.view().Format)},
	}
	if len(missing) > 0 {
		o.Add("unreachable_nodes", missing)
	}
	return o
}

// nodeName returns the name of a node; nil for none, and its number if it is not a member any more.
func (ns *nodes) nodeName(id wlog.NodeID) any {
	if id == 0 {
		return nil
	}
	if n, ok := ns.memberOf(id); ok {
		return n.Name
	}
	return numberText(id)
}

// numberText returns the number of a node as text: it is too large for the numbers of JavaScript.
func numberText(id wlog.NodeID) string { return strconv.FormatUint(uint64(id), 10) }

// memberObject shows a node, and its links as the node itself knows them.
func (a *clusterHandlers) memberObject(n *replicas.Node, views []replicas.View) object {
	o := object{
		{"name", n.Name},
		{"number", numberText(n.ID)},
		{"address", n.Address},
		{"running", a.nodes.isSelf(n)},
		{"version", jsonobj.OrNull(cut(n.Version))},
		{"log_format", formatOrNull(n.Format)},
	}
	i := slices.IndexFunc(views, func(v replicas.View) bool { return v.Self == n.ID })
	if i < 0 {
		return o
	}
	set(o, "running", true)
	links := []object{}
	for k := range views[i].Nodes {
		if to := &views[i].Nodes[k]; to.ID != n.ID {
			links = append(links, a.linkObject(to))
		}
	}
	return append(append(o, member{"links", links}), relayedMembers(&views[i].Relayed)...)
}

func relayedMembers(r *replicas.Relayed) object {
	return object{
		{"relayed_connections", r.Open}, {"relayed_connections_total", r.Total}, {"relayed_bytes_in", r.BytesIn}, {"relayed_bytes_out", r.BytesOut},
	}
}

// formatOrNull returns a format of logs; nil = unknown.
func formatOrNull(format uint32) any {
	if format == 0 {
		return nil
	}
	return int(format)
}

// linkObject shows a link of one node to another.
func (a *clusterHandlers) linkObject(to *replicas.Node) object {
	var trip, offset any
	if to.Link.Measured {
		trip, offset = milliseconds(to.Link.RoundTrip), milliseconds(to.Link.Offset)
	}
	return object{
		{"to", a.nodes.nodeName(to.ID)},
		{"connected", to.Up},
		{"since", jsonobj.Instant(to.Since)},
		{"round_trip_ms", trip},
		{"clock_offset_ms", offset},
		{"sent_bytes", to.Link.Sent},
		{"received_bytes", to.Link.Received},
		{"queued_bytes", to.Link.Queued},
		{"dropped_messages", to.Link.Dropped},
		{"error", jsonobj.OrNull(cut(to.Link.Err))},
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// cut cuts a text of another node.
func cut(s string) string {
	const most = 500
	return s[:min(len(s), most)]
}

// applicants lists the nodes that want the seats of others.
func applicants(views []replicas.View) []object {
	all, seen := []object{}, map[wlog.NodeID]bool{}
	for i := range views {
		for _, n := range views[i].Applicants {
			if !seen[n.ID] {
				seen[n.ID] = true
				all = append(all, object{{"address", cut(n.Address)}, {"number", numberText(n.ID)}})
			}
		}
	}
	return all
}

// shardView is a shard as the nodes know it.
type shardView struct {
	shard uint32
	owner *replicas.Shard // as its owner knows it; nil = no node says that it is the owner
	by    wlog.NodeID     // that owner
	own   map[wlog.NodeID]*replicas.Shard
}

// shardViews merges the nodes' views of each shard. If several nodes call themselves its
// owner, the one with the highest term is.
func shardViews(views []replicas.View) []*shardView {
	byNumber := map[uint32]*shardView{}
	for i := range views {
		for k := range views[i].Shards {
			s := &views[i].Shards[k]
			v := byNumber[s.Shard]
			if v == nil {
				v = &shardView{shard: s.Shard, own: map[wlog.NodeID]*replicas.Shard{}}
				byNumber[s.Shard] = v
			}
			v.own[views[i].Self] = s
			if s.Role == replicas.Owner && (v.owner == nil || s.Term > v.owner.Term) {
				v.owner, v.by = s, views[i].Self
			}
		}
	}
	all := make([]*shardView, 0, len(byNumber))
	for _, v := range byNumber {
		all = append(all, v)
	}
	slices.SortFunc(all, func(x, y *shardView) int { return cmp.Compare(x.shard, y.shard) })
	return all
}

// peer returns a node's replica as the owner knows it.
func (v *shardView) peer(id wlog.NodeID) *replicas.Replica {
	if v.owner == nil {
		return nil
	}
	i := slices.IndexFunc(v.owner.Peers, func(p replicas.Replica) bool { return p.Node == id })
	if i < 0 {
		return nil
	}
	return &v.owner.Peers[i]
}

// caughtUp reports whether a node could own the shard at once.
func (v *shardView) caughtUp(id wlog.NodeID) bool {
	p := v.peer(id)
	return v.active(id) && (p == nil || p.Lag == 0)
}

// active reports whether a node counts for the shard's majority now: it is the owner, or
// the owner has an answer of it since it last looked, or the node itself says that it
// follows the owner. Just after each look, the owner alone does not know.
func (v *shardView) active(id wlog.NodeID) bool {
	if v.owner == nil || id == v.by {
		return v.owner != nil
	}
	p, own := v.peer(id), v.own[id]
	follows := own != nil && own.Role == replicas.Follower && own.Owner == v.by
	return p != nil && p.Voter && (p.Active || follows)
}

// stuck reports whether a node answers but takes no entries now, for example because its
// disk is full. It could not confirm entries in place of another node.
func (v *shardView) stuck(id wlog.NodeID) bool {
	p := v.peer(id)
	return p != nil && !p.Silent && p.Lag > 0 && (p.State == "probe" || p.State == "snapshot")
}

func (a *clusterHandlers) shardObjects(views []replicas.View) []object {
	all := []object{}
	for _, v := range shardViews(views) {
		term := uint64(0)
		list := []object{}
		for _, n := range a.nodes.members() {
			list = append(list, a.replicaObject(v, &n))
			if own := v.own[n.ID]; own != nil {
				term = max(term, own.Term)
			}
		}
		o := object{{"shard", int(v.shard)}, {"registry", v.shard == 0}, {"owner", a.nodes.nodeName(v.by)}, {"term", term}, {"vhosts", a.nodes.vhostsOf(v.shard)}}
		if v.owner != nil {
			o = append(o, member{"preferred", a.nodes.nodeName(v.owner.Preferred)})
			o = append(o, member{"commit", uint64(v.owner.Commit)}, member{"last", uint64(v.owner.Last)})
		}
		all = append(all, append(o, member{"replicas", list}))
	}
	return all
}

// vhostsOf names the vhosts in a shard.
func (ns *nodes) vhostsOf(shard uint32) []string {
	all := []string{}
	for _, name := range ns.placements.VHosts() {
		if s, known := ns.placements.ShardOf(name); known && s == shard {
			all = append(all, name)
		}
	}
	return all
}

// replicaObject shows a node's replica of a shard, as the node itself and the owner know it.
func (a *clusterHandlers) replicaObject(v *shardView, n *replicas.Node) object {
	o := object{{"node", n.Name}, {"role", "unknown"}, {"caught_up", v.caughtUp(n.ID)}}
	if own := v.own[n.ID]; own != nil {
		set(o, "role", string(own.Role))
		o = append(
			o, member{"term", own.Term}, member{"last", uint64(own.Last)}, member{"applied", uint64(own.Applied)}, member{"bytes", own.Bytes},
			member{"elections", own.Elections}, member{"error", jsonobj.OrNull(cut(own.Err))},
		)
	}
	if p := v.peer(n.ID); p != nil {
		o = append(o, member{"voter", p.Voter}, member{"active", v.active(n.ID)}, member{"state", cut(p.State)})
		if !p.Silent {
			o = append(o, member{"lag", p.Lag})
		}
	} else if n.ID == v.by && v.owner != nil {
		o = append(o, member{"voter", true}, member{"active", true}, member{"state", string(replicas.Owner)}, member{"lag", 0})
	}
	return o
}

// critical returns the numbers of the shards for which lost reports true, given how many
// other replicas would be left if this node stopped.
func (a *clusterHandlers) critical(views []replicas.View, lost func(v *shardView, others int) bool) []any {
	all := []any{}
	self, _ := a.nodes.member(a.nodes.self)
	for _, v := range shardViews(views) {
		others := 0
		for _, n := range a.nodes.members() {
			if n.ID != self.ID && v.active(n.ID) && !v.stuck(n.ID) {
				others++
			}
		}
		if lost(v, others) {
			all = append(all, int(v.shard))
		}
	}
	return all
}

// The texts of RabbitMQ's checks, which tools look for.
const (
	quorumCritical = "There are quorum queues that would lose their quorum if the target node is shut down"
	mirrorCritical = "There are classic mirrored queues without online synchronised mirrors"
)

// checked is the scope of checks that need the views of all nodes: whether the other nodes could do without this one.
func checked(reason string, lost func(a *API, v *shardView, others int) bool) scope {
	return together("the node that is asked", unchangedPart, func(c *request, _ *endpoint) error {
		g, err := c.api.nodes.gather(c, question{})
		if err != nil {
			return err
		}
		all := c.api.cluster.critical(g.views(), func(v *shardView, others int) bool { return lost(c.api, v, others) })
		g.mark()
		if len(all) == 0 {
			return c.passed()
		}
		return c.failed(reason, member{"queues", []any{}}, member{"shards", all})
	})
}

// loses reports whether a shard would have no majority without this node.
func loses(a *API, v *shardView, others int) bool {
	voters := len(a.nodes.members())
	if v.owner != nil && len(v.owner.Voters) > 0 {
		voters = len(v.owner.Voters)
	}
	return others < voters/2+1
}

// unsynced reports whether this node owns a shard that no other one could own at once.
func unsynced(a *API, v *shardView, _ int) bool {
	self, _ := a.nodes.member(a.Node)
	return v.by == self.ID && v.owner != nil && !slices.ContainsFunc(a.nodes.members(), func(n replicas.Node) bool {
		return n.ID != self.ID && v.caughtUp(n.ID)
	})
}
