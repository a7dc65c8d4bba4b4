package mgmt

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/streams"
	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/local"
)

// Peers are the nodes of the cluster, and the way to their APIs. Any goroutine may use them.
type Peers interface {
	// Nodes returns all members, including this node, in the same order at each node.
	Nodes() []replicas.Node
	// Do sends a request to another node, whose API's [API.Forwarded] answers it, and
	// returns the answer once its header is there. It fails as soon as the node is known to
	// be away. The caller closes the answer's body.
	Do(ctx context.Context, node wlog.NodeID, r *http.Request) (*http.Response, error)
}

// Placements say in which shard each vhost is and which node owns it, as far as this node
// knows. Any goroutine may use them, for each request.
type Placements interface {
	// OwnerOf returns the owner of a vhost; 0 = it has none now. known is false if the registry has no such vhost.
	OwnerOf(vhost string) (owner wlog.NodeID, known bool)
	// AwaitVHost waits until this node serves a vhost that it owns, loses it, or ctx ends.
	// It returns at once if this node does not own the vhost.
	AwaitVHost(ctx context.Context, vhost string)
	// ShardOf returns the shard that a vhost is in.
	ShardOf(vhost string) (shard uint32, known bool)
	// VHosts returns the names of all vhosts that the registry has, sorted.
	VHosts() []string
	// Registrar returns the owner of the registry; 0 = it has none now.
	Registrar() wlog.NodeID
	// Fresh waits until this node's copy of the registry has all that was durable when it was called.
	Fresh(ctx context.Context) error
}

// Replicas are the cluster's shards. Any goroutine may use them.
type Replicas interface {
	// View returns the cluster as this node knows it.
	View() replicas.View
	// Transfer hands a shard that this node owns to another node.
	Transfer(ctx context.Context, shard uint32, to wlog.NodeID) error
	// Admit lets a node with another number take the seat of the node at an address. It is
	// called at each node, and may be called again.
	Admit(ctx context.Context, address string, number wlog.NodeID) error
	// Replace makes an admitted node a replica of a shard that this node owns, in place of
	// the former node at its address, and waits until it has all of the log. It continues
	// an earlier call that did not finish.
	Replace(ctx context.Context, shard uint32, by wlog.NodeID) error
	// Copies describes this node's copies of the shards, once they have all that was
	// durable in the cluster when it was called; nil = its logs are no copies.
	Copies(ctx context.Context) (*replicas.Copy, error)
}

// alone is the cluster of a broker without one: its only node, which owns everything. It
// implements [Peers], [Placements] and [Replicas].
type alone struct {
	node  string
	store *store.Store
}

func (s alone) Nodes() []replicas.Node {
	return []replicas.Node{{ID: local.Self, Name: s.node, Up: true}}
}

func (alone) Do(context.Context, wlog.NodeID, *http.Request) (*http.Response, error) {
	return nil, errNoCluster
}

func (s alone) OwnerOf(vhost string) (owner wlog.NodeID, known bool) {
	_, known = s.store.VHost(vhost)
	return local.Self, known
}

func (alone) AwaitVHost(context.Context, string) {}

func (s alone) ShardOf(vhost string) (shard uint32, known bool) {
	p, known := s.store.Registry().Placement(vhost)
	return p.Shard, known
}

func (s alone) VHosts() (names []string) {
	for _, v := range s.store.VHosts() {
		names = append(names, v.Name())
	}
	return names
}

func (alone) Registrar() wlog.NodeID { return local.Self }

func (alone) Fresh(context.Context) error { return nil }

func (s alone) View() replicas.View { return replicas.View{Self: local.Self, Nodes: s.Nodes()} }

func (alone) Transfer(context.Context, uint32, wlog.NodeID) error { return errNoCluster }

func (alone) Admit(context.Context, string, wlog.NodeID) error { return errNoCluster }

func (alone) Replace(context.Context, uint32, wlog.NodeID) error { return errNoCluster }

func (alone) Copies(context.Context) (*replicas.Copy, error) {
	return nil, nil //nolint:nilnil // see Replicas
}

// nodes are the nodes of the cluster as this one knows them, and the way to their APIs. Any goroutine may use them.
type nodes struct {
	self       string // this node's name
	peers      Peers
	placements Placements
	replicas   Replicas
	store      *store.Store
	log        *slog.Logger
	viewers    *streams.Streams // of streams that are passed on
	parts      *gatherMemory
	deep       int // up to this item, nodes send all rows until the end of a page

	patience, silence time.Duration // see send, and passOn
}

func (ns *nodes) members() []replicas.Node { return ns.peers.Nodes() }

// others returns the nodes besides this one.
func (ns *nodes) others() []replicas.Node {
	return slices.DeleteFunc(slices.Clone(ns.members()), func(n replicas.Node) bool { return ns.isSelf(&n) })
}

func (ns *nodes) member(name string) (n replicas.Node, ok bool) {
	return ns.find(func(n *replicas.Node) bool { return n.Name == name })
}

func (ns *nodes) memberOf(id wlog.NodeID) (n replicas.Node, ok bool) {
	return ns.find(func(n *replicas.Node) bool { return n.ID == id })
}

func (ns *nodes) find(is func(*replicas.Node) bool) (n replicas.Node, ok bool) {
	all := ns.members()
	i := slices.IndexFunc(all, func(n replicas.Node) bool { return is(&n) })
	if i < 0 {
		return n, false
	}
	return all[i], true
}

func (ns *nodes) isSelf(n *replicas.Node) bool { return n.Name == ns.self }

// knows reports whether there is a vhost, here or at another node.
func (ns *nodes) knows(vhost string) bool {
	if _, here := ns.store.VHost(vhost); here {
		return true
	}
	_, known := ns.placements.OwnerOf(vhost)
	return known
}

// clusterName returns the name that the broker was given or, if it has none, the one of its
// node; in a cluster, of the first node.
func (ns *nodes) clusterName() string {
	if raw, ok := ns.store.GlobalParameter(paramClusterName); ok {
		if v, err := jsonobj.Parse(raw); err == nil {
			if name, ok := v.(string); ok {
				return name
			}
		}
	}
	if name := ns.store.Registry().Cluster(); name != "" {
		return name
	}
	return ns.members()[0].Name
}
