package mgmt

import (
	"context"
	"net/http"
	"slices"

	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/wlog"
)

// Peers are the nodes of the cluster, and the way to their APIs. Any goroutine may use them.
type Peers interface {
	// Nodes returns all members, including this node, in the same order at each node.
	Nodes() []replicas.Node
	// Do sends a request to another node, whose API's [API.Forwarded] answers it, and returns the answer once its header is there. It
	// fails as soon as the node is known to be away. The caller closes the answer's body.
	Do(ctx context.Context, node wlog.NodeID, r *http.Request) (*http.Response, error)
}

// Placements say which node owns what, as far as this node knows. Any goroutine may use them, for each request.
type Placements interface {
	// OwnerOf returns the owner of a vhost; 0 = it has none now. known is false if the registry has no such vhost.
	OwnerOf(vhost string) (owner wlog.NodeID, known bool)
	// AwaitVHost waits until this node serves a vhost that it owns, loses it, or ctx ends. It returns at once if this node does not own the
	// vhost.
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
	// Admit lets a node with another number take the seat of the node at an address. It is called at each node, and may be called again.
	Admit(ctx context.Context, address string, number wlog.NodeID) error
	// Replace makes an admitted node a replica of a shard that this node owns, in place of the former node at its address, and waits until
	// it has all of the log. It continues an earlier call that did not finish.
	Replace(ctx context.Context, shard uint32, by wlog.NodeID) error
	// Copies describes this node's copies of the shards, once they have all that was durable in the cluster when it was called.
	Copies(ctx context.Context) (replicas.Copy, error)
}

// clustered reports whether the broker is a node of a cluster.
func (a *API) clustered() bool { return a.Peers != nil }

// members returns the nodes of the cluster; of a single broker, that one.
func (a *API) members() []replicas.Node {
	if !a.clustered() {
		return []replicas.Node{{Name: a.Node, Up: true}}
	}
	return a.Peers.Nodes()
}

// member returns the node of a name.
func (a *API) member(name string) (n replicas.Node, ok bool) {
	return a.find(func(n *replicas.Node) bool { return n.Name == name })
}

// memberOf returns the node of a number.
func (a *API) memberOf(id wlog.NodeID) (n replicas.Node, ok bool) {
	return a.find(func(n *replicas.Node) bool { return n.ID == id })
}

func (a *API) find(is func(*replicas.Node) bool) (n replicas.Node, ok bool) {
	all := a.members()
	i := slices.IndexFunc(all, func(n replicas.Node) bool { return is(&n) })
	if i < 0 {
		return n, false
	}
	return all[i], true
}

// isSelf reports whether a node is this one.
func (a *API) isSelf(n *replicas.Node) bool { return n.Name == a.Node }

// knows reports whether there is a vhost, here or at another node.
func (a *API) knows(vhost string) bool {
	if _, here := a.Store.VHost(vhost); here || !a.clustered() {
		return here
	}
	_, known := a.Placements.OwnerOf(vhost)
	return known
}
