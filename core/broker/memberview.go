package broker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/quorum"
)

// clusterView is the cluster as the management API sees it. It implements [mgmt.Peers], [mgmt.Placements] and [mgmt.Replicas].
type clusterView struct {
	*member
	store   *store.Store
	amqp    *wire.Server
	version string // of this program
}

func (v *clusterView) Nodes() []replicas.Node {
	status, formats := v.Status(), v.Formats()
	var all []replicas.Node
	for _, n := range v.Members() {
		one := replicas.Node{ID: n.ID, Name: nameOf(n.Address), Address: n.Address, Up: n.ID == status.Self.ID, Format: formats[n.ID]}
		if one.Up {
			one.Version = v.version
		}
		if i := slices.IndexFunc(status.Links, func(l peer.Status) bool { return l.Node.ID == n.ID }); i >= 0 {
			l := &status.Links[i]
			one.Up, one.Since, one.Link = l.Connected, l.Since, linkOf(l)
			one.Version = l.Version
		}
		all = append(all, one)
	}
	return all
}

func linkOf(l *peer.Status) replicas.Link {
	r := replicas.Link{
		Local: l.Local, Remote: l.Remote, Sent: l.Sent, Received: l.Received, Queued: int64(l.Queued), Dropped: l.Dropped, RoundTrip: l.RoundTrip, Offset: l.Offset, Measured: l.Clock,
	}
	if l.Err != nil {
		r.Err = l.Err.Error()
	}
	return r
}

func (v *clusterView) Do(ctx context.Context, node wlog.NodeID, r *http.Request) (*http.Response, error) {
	for _, l := range v.Status().Links {
		if l.Node.ID == node && !l.Connected {
			return nil, fmt.Errorf("there is no link to node %s: %w", nameOf(l.Node.Address), l.Err)
		}
	}
	to := r.Clone(ctx)
	to.URL.Scheme, to.URL.Host = "http", strconv.FormatUint(uint64(node), 10)
	return v.advance.RoundTrip(to)
}

func (v *clusterView) OwnerOf(vhost string) (owner wlog.NodeID, known bool) {
	h, known := v.store.Home(vhost)
	return h.Owner, known
}

func (v *clusterView) AwaitVHost(ctx context.Context, vhost string) {
	if _, known := v.store.Home(vhost); !known && v.Fresh(ctx) != nil {
		return
	}
	for self := v.Status().Self.ID; ; {
		h, known := v.store.Home(vhost)
		if !known || h.Here || h.Owner != self {
			return
		}
		select {
		case <-h.Changed:
		case <-ctx.Done():
			return
		}
	}
}

func (v *clusterView) ShardOf(vhost string) (shard uint32, known bool) {
	p, known := v.store.Registry().Placement(vhost)
	return p.Shard, known
}

func (v *clusterView) VHosts() []string {
	all, _ := v.store.Registry().Placements(0)
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.VHost
	}
	return names
}

func (v *clusterView) Registrar() wlog.NodeID { return v.store.Registry().Owner() }

func (v *clusterView) Fresh(ctx context.Context) error { return v.store.Registry().Fresh(ctx) }

func (v *clusterView) View() replicas.View {
	status := v.Status()
	view := replicas.View{Cluster: status.Cluster, Self: status.Self.ID, Nodes: v.Nodes(), Format: v.Writes()}
	for _, n := range v.Applicants() {
		view.Applicants = append(view.Applicants, replicas.Node{ID: n.ID, Name: nameOf(n.Address), Address: n.Address})
	}
	for _, r := range v.Engine().Status() {
		view.Shards = append(view.Shards, shardOf(&r))
	}
	t := v.amqp.RelayTotals()
	view.Relayed = replicas.Relayed{Open: t.Open, Total: t.Begun, BytesIn: t.Traffic.BytesIn, BytesOut: t.Traffic.BytesOut}
	return view
}

func shardOf(r *quorum.ReplicaStatus) replicas.Shard {
	s := replicas.Shard{
		Shard: r.Shard, Role: replicas.Role(r.Role.String()), Owner: r.Owner, Preferred: quorum.Preferred(r.Shard, r.Voters), Term: r.Term, Voters: r.Voters,
		Commit: wlog.Index(r.Commit), Applied: wlog.Index(r.Applied), Last: wlog.Index(r.Last), Bytes: r.Bytes, Elections: r.Elections, Commits: r.Commits,
	}
	if r.Err != nil {
		s.Err = r.Err.Error()
	}
	for _, p := range r.Peers {
		s.Peers = append(s.Peers, replicas.Replica{Node: p.Node, Voter: !p.Learner, Active: p.Active, State: p.State, Match: wlog.Index(p.Match), Lag: p.Lag, Silent: p.Match == 0})
	}
	return s
}

func (v *clusterView) Transfer(ctx context.Context, shard uint32, to wlog.NodeID) error {
	return v.Engine().Transfer(ctx, shard, to)
}

func (v *clusterView) Admit(_ context.Context, address string, number wlog.NodeID) error {
	return v.Node.Admit(peer.Node{ID: number, Address: address}) //nolint:contextcheck // links live until the node ends
}

func (v *clusterView) Replace(ctx context.Context, shard uint32, by wlog.NodeID) error {
	for _, n := range v.Members() {
		if n.ID == by {
			return v.Node.Replace(ctx, shard, n)
		}
	}
	return fmt.Errorf("node %d is not admitted", by)
}

// formatPause is the pause between two checks of the formats that the nodes read. It may be
// long: formats change when a node was upgraded.
const formatPause = time.Second

// keepFormats runs until ctx ends. While this node owns the registry, keepFormats writes to
// it which nodes exist and which formats of logs they read. On every node it sets the
// format in which the node writes to one that all nodes read.
func (m *member) keepFormats(ctx context.Context, r *store.Registry) {
	ticker := time.NewTicker(formatPause)
	defer ticker.Stop()
	said := ""
	for {
		changed := r.Changed()
		if err := errors.Join(m.describeMembers(r), m.SetFormat(uint32(r.Format()))); err == nil { //nolint:contextcheck // changes take none, links live until the node ends
			said = ""
		} else if said != err.Error() {
			said = err.Error()
			m.log.Warn("the log formats that the cluster's nodes read are not up to date", "error", err)
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// describeMembers writes the nodes' own descriptions to the registry, if this node owns the registry.
func (m *member) describeMembers(r *store.Registry) error {
	if !r.Owned() {
		return nil
	}
	reads, known := m.Formats(), r.Members()
	for _, n := range m.Members() {
		if err := m.describeMember(r, known, n, reads[n.ID]); err != nil && !errors.Is(err, wlog.ErrNotOwner) && !errors.Is(err, wlog.ErrLost) {
			return err
		}
	}
	return nil
}

// describeMember is describeMembers for a node that reads logs up to a format; 0 = it was not connected yet.
func (m *member) describeMember(r *store.Registry, known []store.Member, n peer.Node, reads uint32) error {
	now := store.Member{Number: n.ID, Address: n.Address, Name: nameOf(n.Address), Format: int64(reads)}
	at := slices.IndexFunc(known, func(k store.Member) bool { return k.Address == n.Address })
	switch {
	case reads < m.Writes(): // the node is not connected, or about to be refused: its former description holds
		return nil
	case at < 0:
		return r.SetMember(now)
	case known[at].Number != n.ID: // cluster.Node decides which number is right
		return nil
	case known[at] != now:
		return r.SetMember(now)
	}
	return nil
}
