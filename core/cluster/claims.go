package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/wlog"
)

// hello returns what the node says of itself to others.
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

// check returns why the node refuses another one.
func (n *Node) check(h peer.Hello) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case h.Format.To < n.id.writes():
		return fmt.Errorf("it reads logs of format %v, and this cluster writes format %d: start version %s or a later one there", h.Format, n.id.writes(), n.options.Version)
	case h.Name != n.options.Name:
		return fmt.Errorf("its cluster.name is %q, and that of this node %q", h.Name, n.options.Name)
	case h.Shards != n.options.Shards:
		return fmt.Errorf("its cluster.shards is %d, and that of this node %d", h.Shards, n.options.Shards)
	case !n.id.member():
		return n.checkFirst(&h)
	case h.Cluster == "":
		return n.checkNewcomer(&h)
	}
	return n.checkMember(&h)
}

// checkFirst checks a node for one that is of no cluster yet.
func (n *Node) checkFirst(h *peer.Hello) error {
	own, theirs := slices.Sorted(slices.Values(n.options.Nodes)), addressesOf(h.Nodes)
	switch {
	case !slices.Equal(own, theirs):
		return fmt.Errorf("its cluster.nodes are %s, and those of this node %s", strings.Join(theirs, ","), strings.Join(own, ","))
	case h.Address == n.id.Address:
		return fmt.Errorf("its cluster.advertise is %s, as that of this node: it has to be another one of cluster.nodes", h.Address)
	case !slices.Contains(own, h.Address):
		return fmt.Errorf("its cluster.advertise is %s, which is none of the other nodes %s", h.Address, strings.Join(own, ","))
	case h.Kind != peer.Greeting:
		return peer.Later("this node is of no cluster yet")
	case h.Cluster == "" && h.Seed != 0 && n.id.Seed != 0:
		return fmt.Errorf("its data folder and that of this node at %s were both made by curfew ctl cluster import or restore: a cluster begins with one; "+
			"start the other with an empty folder", n.id.Address)
	case h.Cluster != "" && n.id.Seed != 0 && h.Seed != n.id.Seed:
		return errors.New("it is of a cluster, and the data folder of this node was made by curfew ctl cluster import or restore, to begin another one")
	}
	return nil
}

// checkNewcomer checks a node that is of no cluster yet for one that is. The newcomer finds its number in this node's hello, if it has
// been admitted.
func (n *Node) checkNewcomer(h *peer.Hello) error {
	known := n.id.at(h.Address)
	switch {
	case known == 0:
		return n.errElsewhere(h)
	case known != h.Node && h.Seed != 0:
		return errors.New("its data folder was made by curfew ctl cluster import or restore, to begin a cluster: this one has begun; start it with an empty folder")
	case known != h.Node:
		n.applicants[h.Address] = h.Node
		return fmt.Errorf("the cluster knows node %d at %s, and this one is node %d, which has no data: start it with the folder that belongs "+
			"there; if that is lost, run curfew ctl cluster replace %s on another node", known, h.Address, h.Node, h.Address)
	case h.Kind != peer.Greeting:
		return peer.Later("it is of no cluster yet")
	}
	return nil
}

func (n *Node) checkMember(h *peer.Hello) error {
	known := n.id.at(h.Address)
	switch {
	case h.Cluster != n.id.Cluster:
		return fmt.Errorf("it is of the cluster %s, and this node of %s: they were started apart, and have different data", h.Cluster, n.id.Cluster)
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

// errShutOut is the error for a member of the cluster that has not, or not yet, the seat at its address. Its own log has it, too.
func (n *Node) errShutOut(h *peer.Hello, known wlog.NodeID) error {
	if slices.Contains(n.id.Former, h.Node) {
		return fmt.Errorf("node %d at %s was replaced by node %d, and is shut out for good: stop it, and never start it with its data folder again; "+
			"with an empty one it is a new node, which curfew ctl cluster replace %s on another node lets in", h.Node, h.Address, known, h.Address)
	}
	return fmt.Errorf("it is node %d, but the node at %s is number %d: if node %d was replaced, stop it, and never start it with its data folder again; "+
		"if it is the new one, run curfew ctl cluster replace %s on another node, unless that is under way", h.Node, h.Address, known, h.Node, h.Address)
}

func (n *Node) errElsewhere(h *peer.Hello) error {
	return fmt.Errorf("its cluster.advertise is %s, but the nodes of this cluster are at %s", h.Address, strings.Join(addressesOf(n.id.Nodes), ","))
}

// adoptable returns the cluster that a node is of, if it has this one as a node, and an error if what it says is impossible.
func (n *Node) adoptable(h *peer.Hello) (identity, error) {
	if n.id.Seed != 0 && h.Seed != n.id.Seed {
		return identity{}, fmt.Errorf("the cluster of the node at %s did not begin with the data of this node", h.Address)
	}
	id := n.id
	id.Cluster, id.Name, id.Shards = h.Cluster, h.Name, h.Shards
	id.Founders, id.Nodes, id.Seed = slices.Clone(h.Founders), slices.Clone(h.Nodes), h.Seed
	sortNodes(id.Nodes)
	if known := id.at(id.Address); known != id.Number {
		return identity{}, fmt.Errorf("the node at %s knows node %d at %s, and this is node %d", h.Address, known, id.Address, id.Number)
	}
	if err := checkSet(id.Nodes); err != nil {
		return identity{}, fmt.Errorf("what the node at %s says of its cluster: %w", h.Address, err)
	}
	return id, id.check()
}

// checkSet returns an error unless nodes are a whole cluster: as many as there have to be, no two with one number or address.
func checkSet(nodes []peer.Node) error {
	if len(nodes) != Size {
		return fmt.Errorf("it has %d nodes: a cluster has three nodes", len(nodes))
	}
	numbers, addresses := map[wlog.NodeID]bool{}, map[string]bool{}
	for _, node := range nodes {
		if node.ID == 0 || numbers[node.ID] || addresses[node.Address] {
			return fmt.Errorf("node %d at %s is there twice, or has no number", node.ID, node.Address)
		}
		numbers[node.ID], addresses[node.Address] = true, true
	}
	return nil
}
