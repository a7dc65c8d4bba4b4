package metrics

import (
	"strconv"

	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/wlog"
)

// roles are the values of the label role, in the order of their series.
var roles = []replicas.Role{replicas.Owner, replicas.Follower, replicas.Learner, replicas.Candidate, replicas.Stopped}

// shardValues are the families with a series for each shard of which the node has a replica.
var shardValues = [...]struct {
	kind       Kind
	name, help string
	value      func(*replicas.Shard) float64
}{
	{Gauge, "curfew_shard_owner", "Whether this node owns the shard", func(s *replicas.Shard) float64 { return truth(s.Role == replicas.Owner) }},
	{
		Gauge, "curfew_shard_owned", "Whether this node knows of an owner of the shard",
		func(s *replicas.Shard) float64 { return truth(s.Owner != 0) },
	},
	{Gauge, "curfew_shard_term", "Number of the shard's owner, which rises with each", func(s *replicas.Shard) float64 { return float64(s.Term) }},
	{
		Counter, "curfew_shard_elections_total", "Owners that this node has seen come since it was started",
		func(s *replicas.Shard) float64 { return float64(s.Elections) },
	},
	{
		Gauge, "curfew_shard_commit_index", "Last entry that this node knows to be on a majority of the nodes",
		func(s *replicas.Shard) float64 { return float64(s.Commit) },
	},
	{
		Gauge, "curfew_shard_unapplied_entries", "Entries that this node knows to be on a majority, and has not acted on",
		func(s *replicas.Shard) float64 { return float64(s.Commit - min(s.Applied, s.Commit)) },
	},
	{Gauge, "curfew_shard_bytes", "Bytes of the replica on this node's disk", func(s *replicas.Shard) float64 { return float64(s.Bytes) }},
}

// linkValues are the families with a series for each other node.
var linkValues = [...]struct {
	kind       Kind
	name, help string
	value      func(*replicas.Node) float64
}{
	{Gauge, "curfew_node_connected", "Whether there is a link to the node", func(n *replicas.Node) float64 { return truth(n.Up) }},
	{
		Counter, "curfew_link_sent_bytes_total", "Bytes that were sent to the node over links for logs",
		func(n *replicas.Node) float64 { return float64(n.Link.Sent) },
	},
	{
		Counter, "curfew_link_received_bytes_total", "Bytes that came from the node over links for logs",
		func(n *replicas.Node) float64 { return float64(n.Link.Received) },
	},
	{Gauge, "curfew_link_queued_bytes", "Bytes that wait for the node", func(n *replicas.Node) float64 { return float64(n.Link.Queued) }},
	{
		Counter, "curfew_link_dropped_messages_total", "Messages that were not sent, because too many waited or the node was away",
		func(n *replicas.Node) float64 { return float64(n.Link.Dropped) },
	},
}

// gatherCluster adds the families of a cluster's node; a single broker has none of them.
func (c *Collector) gatherCluster(b *builder) {
	if c.Replicas == nil {
		return
	}
	v := c.Replicas()
	names := nodeLabels(&v)
	b.shards(v.Shards)
	b.replicasOf(v.Shards, names)
	b.links(&v, names)
	b.relayed(&v.Relayed)
}

// nodeLabels returns the labels of the nodes by their numbers.
func nodeLabels(v *replicas.View) map[wlog.NodeID]string {
	names := make(map[wlog.NodeID]string, len(v.Nodes))
	for i := range v.Nodes {
		names[v.Nodes[i].ID] = v.Nodes[i].Name
	}
	return names
}

func (b *builder) shards(all []replicas.Shard) {
	labels := make([]*Labels, len(all))
	for i := range all {
		labels[i] = label("shard", shardText(&all[i]))
	}
	for _, f := range shardValues {
		family := b.family(f.kind, f.name, f.help)
		for i := range all {
			family.add(labels[i], f.value(&all[i]))
		}
	}
	role := b.family(Gauge, "curfew_shard_role", "Role of this node's replica of the shard: 1 for that role, 0 for the others")
	for i := range all {
		for _, r := range roles {
			role.add(label("shard", shardText(&all[i]), "role", string(r)), truth(all[i].Role == r))
		}
	}
	commits := b.family(Histogram, "curfew_shard_commit_seconds", "Time that entries took to be on a majority of the nodes, while this node owned the shard")
	for i := range all {
		commits.distribution(labels[i], all[i].Commits)
	}
}

func shardText(s *replicas.Shard) string { return strconv.Itoa(int(s.Shard)) }

// replicasOf adds what this node knows about the other replicas of the shards that it owns.
func (b *builder) replicasOf(all []replicas.Shard, names map[wlog.NodeID]string) {
	lag := b.family(Gauge, "curfew_replica_lag_entries", "Entries of a shard of this node's that the other node lacks")
	active := b.family(Gauge, "curfew_replica_active", "Whether the other node has answered within the last election timeout")
	voter := b.family(Gauge, "curfew_replica_voter", "Whether the other node counts for the shard's majority")
	for i := range all {
		for k := range all[i].Peers {
			p := &all[i].Peers[k]
			l := label("shard", shardText(&all[i]), "node", nodeText(names, p.Node))
			if !p.Silent {
				lag.add(l, float64(p.Lag))
			}
			active.add(l, truth(p.Active))
			voter.add(l, truth(p.Voter))
		}
	}
}

// nodeText returns the name of a node, or its number if it is not a member because it is being replaced.
func nodeText(names map[wlog.NodeID]string, id wlog.NodeID) string {
	if name, ok := names[id]; ok {
		return name
	}
	return strconv.FormatUint(uint64(id), 10)
}

// links adds the state of this node's links to the others.
func (b *builder) links(v *replicas.View, names map[wlog.NodeID]string) {
	for _, f := range linkValues {
		family := b.family(f.kind, f.name, f.help)
		for i := range v.Nodes {
			if n := &v.Nodes[i]; n.ID != v.Self {
				family.add(label("node", nodeText(names, n.ID)), f.value(n))
			}
		}
	}
	trip := b.family(Gauge, "curfew_link_round_trip_seconds", "Time that the last ping of the node took, there and back")
	offset := b.family(Gauge, "curfew_node_clock_offset_seconds", "How far the clock of the other node is ahead of this node's")
	for i := range v.Nodes {
		if n := &v.Nodes[i]; n.ID != v.Self && n.Link.Measured {
			l := label("node", nodeText(names, n.ID))
			trip.add(l, n.Link.RoundTrip.Seconds())
			offset.add(l, n.Link.Offset.Seconds())
		}
	}
}

func (b *builder) relayed(r *replicas.Relayed) {
	b.gauge("curfew_relayed_connections", "Connections of clients that this node relays to the owners of their vhosts", float64(r.Open))
	b.counter("curfew_relayed_connections_opened_total", "Connections that this node has relayed", r.Total)
	bytes := b.family(Counter, "curfew_relayed_bytes_total", "Bytes that this node has relayed, from clients (in) and to them (out)")
	bytes.add(label("direction", "in"), float64(r.BytesIn))
	bytes.add(label("direction", "out"), float64(r.BytesOut))
}
