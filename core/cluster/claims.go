package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/wlog"
)

// hello returns the node's greeting to other nodes.
func (n *Node) hello() peer.Hello {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := peer.Hello{
		Format: peer.Range{From: FirstFormat, To: n.options.Format}, Node: n.id.Number, Address: n.id.Address, Name: n.options.Name, Version: n.options.Version,
		Shards: n.options.Shards, Cluster: n.id.Cluster, Founders: n.id.Founders, Nodes: n.id.Nodes, Joins: n.joins, Seed: n.id.Seed,
	}
	if !n.id.member() {
		for _, address := range n.options.Nodes {
			h.Nodes = append(h.Nodes, peer.Node{Address: address})
		}
	}
	return h
}

// check returns the reason for which this node refuses another one; nil = it does not.
func (n *Node) check(h peer.Hello) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case h.Format.To < n.id.writes():
		return fmt.Errorf("it reads logs of format %v, and this cluster writes format %d: start version %s or a later one there", h.Format, n.id.writes(), n.options.Version)
	case h.Name != n.options.Name:
		return fmt.Errorf("its cluster.name is %q, but this node's is %q", h.Name, n.options.Name)
	case h.Shards != n.options.Shards:
		return fmt.Errorf("its cluster.shards is %d, but this node's is %d", h.Shards, n.options.Shards)
	case !n.id.member():
		return n.checkFirst(&h)
	case h.Cluster == "":
		return n.checkNewcomer(&h)
	}
	return n.checkMember(&h)
}

// checkFirst is check for a node that does not belong to a cluster yet.
func (n *Node) checkFirst(h *peer.Hello) error {
	own, theirs := slices.Sorted(slices.Values(n.options.Nodes)), addressesOf(h.Nodes)
	switch {
	case !slices.Equal(own, theirs):
		return fmt.Errorf("its cluster.nodes are %s, but this node's are %s", strings.Join(theirs, ","), strings.Join(own, ","))
	case h.Address == n.id.Address:
		return fmt.Errorf("its cluster.advertise is %s, the same as this node's: each node needs its own address of cluster.nodes", h.Address)
	case !slices.Contains(own, h.Address):
		return fmt.Errorf("its cluster.advertise is %s, which is not among cluster.nodes %s", h.Address, strings.Join(own, ","))
	case h.Kind != peer.Greeting:
		return peer.Later("this node does not belong to a cluster yet")
	case h.Cluster == "" && h.Seed != 0 && n.id.Seed != 0:
		return fmt.Errorf("its data folder and that of this node at %s were both made by curfew ctl cluster import or restore, but a cluster can begin with only one: "+
			"start the other node with an empty folder", n.id.Address)
	case h.Cluster != "" && n.id.Seed != 0 && h.Seed != n.id.Seed:
		return errors.New("it belongs to a cluster already, but the data folder of this node was made by curfew ctl cluster import or restore, to begin another one")
	}
	return nil
}

// checkNewcomer is check at a member of a cluster, for a node that belongs to none yet. A newcomer that was admitted finds its number in
// this node's hello.
func (n *Node) checkNewcomer(h *peer.Hello) error {
	known := n.id.at(h.Address)
	switch {
	case known == 0:
		return n.errElsewhere(h)
	case known != h.Node && h.Seed != 0:
		return errors.New("its data folder was made by curfew ctl cluster import or restore, to begin a cluster, but this cluster has begun already: start it with an empty folder")
	case known != h.Node:
		n.applicants[h.Address] = h.Node
		return fmt.Errorf("the cluster has node %d at %s, but this is node %d, which has no data: start it with the data folder that belongs "+
			"there; if that is lost, run curfew ctl cluster replace %s on another node", known, h.Address, h.Node, h.Address)
	case h.Kind != peer.Greeting:
		return peer.Later("it does not belong to a cluster yet")
	}
	return nil
}

func (n *Node) checkMember(h *peer.Hello) error {
	known := n.id.at(h.Address)
	switch {
	case h.Cluster != n.id.Cluster:
		return fmt.Errorf("it belongs to cluster %s, but this node to %s: they were started separately, and have different data", h.Cluster, n.id.Cluster)
	case known == 0:
		return n.errElsewhere(h)
	case known != h.Node:
		return n.errShutOut(h, known)
	}
	delete(n.applicants, h.Address)
	if n.engine.Load() == nil && (h.Kind == peer.Small || h.Kind == peer.Bulk) {
		return peer.Later("this node is still reading its logs")
	}
	return nil
}

// errShutOut is the error for a member of the cluster that does not have the seat at its address, or not yet. That member logs it, too.
func (n *Node) errShutOut(h *peer.Hello, known wlog.NodeID) error {
	if slices.Contains(n.id.Former, h.Node) {
		return fmt.Errorf("node %d at %s was replaced by node %d, and is shut out for good: stop it, and never start it with its data folder again; "+
			"with an empty folder it is a new node, which curfew ctl cluster replace %s on another node admits", h.Node, h.Address, known, h.Address)
	}
	return fmt.Errorf("it is node %d, but the node at %s is number %d: if node %d was replaced, stop it, and never start it with its data folder again; "+
		"if it is the new node, run curfew ctl cluster replace %s on another node, unless that is under way", h.Node, h.Address, known, h.Node, h.Address)
}

func (n *Node) errElsewhere(h *peer.Hello) error {
	return fmt.Errorf("its cluster.advertise is %s, but the nodes of this cluster are at %s", h.Address, strings.Join(addressesOf(n.id.Nodes), ","))
}

// adoptable returns the cluster of a node whose members include this node. It returns an error if the node's greeting is impossible.
func (n *Node) adoptable(h *peer.Hello) (identity, error) {
	if n.id.Seed != 0 && h.Seed != n.id.Seed {
		return identity{}, fmt.Errorf("the cluster of the node at %s did not begin with the data of this node", h.Address)
	}
	id := n.id
	id.Cluster, id.Name, id.Shards = h.Cluster, h.Name, h.Shards
	id.Founders, id.Nodes, id.Seed = slices.Clone(h.Founders), slices.Clone(h.Nodes), h.Seed
	sortNodes(id.Nodes)
	if known := id.at(id.Address); known != id.Number {
		return identity{}, fmt.Errorf("the node at %s has node %d at %s, but this is node %d", h.Address, known, id.Address, id.Number)
	}
	if err := checkSet(id.Nodes); err != nil {
		return identity{}, fmt.Errorf("the node at %s describes an impossible cluster: %w", h.Address, err)
	}
	return id, id.check()
}

// checkSet returns an error unless nodes are a whole cluster: the right number of nodes, with different numbers and addresses.
func checkSet(nodes []peer.Node) error {
	if len(nodes) != Size {
		return fmt.Errorf("it has %d nodes: a cluster has three nodes", len(nodes))
	}
	numbers, addresses := map[wlog.NodeID]bool{}, map[string]bool{}
	for _, node := range nodes {
		if node.ID == 0 || numbers[node.ID] || addresses[node.Address] {
			return fmt.Errorf("node %d at %s is listed twice, or has no number", node.ID, node.Address)
		}
		numbers[node.ID], addresses[node.Address] = true, true
	}
	return nil
}
