package cluster

import (
	"errors"
	"fmt"
	"slices"

	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/wlog"
)

// Roster is what the registry has: what all nodes know of the cluster's members. A node that is away while another one is replaced learns it from there.
type Roster interface {
	// Ready returns a channel that is closed once this node knows what was durable when it started.
	Ready() <-chan struct{}
	// Changed returns a channel that is closed at the next change. To see all changes, ask for it first, and look then.
	Changed() <-chan struct{}
	// Owned reports whether this node may change the registry.
	Owned() bool
	// Seats returns the members.
	Seats() []peer.Node
	// Seat puts a member in the place of another.
	Seat(former wlog.NodeID, by peer.Node) error
}

// Follow has the node take its members from the registry, and keep the registry and the shards as operators want them, until Close.
// It is called once.
func (n *Node) Follow(r Roster) { n.duties.Go(func() { n.keepMembers(r) }) }

// follow makes members of those that the registry has. Where an operator has replaced one of them at this node, the registry lags behind:
// its owner writes that there.
//
// A registry that knows none of the node's members is that of another cluster, whose data this one began with: it is about to be changed.
func (n *Node) follow(r Roster) (all error) {
	seats, members := r.Seats(), n.Members()
	if !slices.ContainsFunc(seats, func(s peer.Node) bool { return slices.Contains(members, s) }) {
		return nil
	}
	for _, seat := range seats {
		n.mu.Lock()
		own, replaced := n.id.at(seat.Address), slices.Contains(n.id.Former, seat.ID)
		n.mu.Unlock()
		switch {
		case own == seat.ID || own == 0:
		case seat.Address != n.options.Advertise && !replaced:
			all = errors.Join(all, n.seat(seat, false))
		case r.Owned(): // at its own address a node that owns the registry is the one that belongs there
			all = errors.Join(all, r.Seat(seat.ID, peer.Node{ID: own, Address: seat.Address}))
		case replaced:
			all = errors.Join(all, fmt.Errorf("the registry has node %d at %s, in whose place node %d was admitted here: if this does not end, run curfew ctl cluster replace %s again",
				seat.ID, seat.Address, own, seat.Address))
		}
	}
	return all
}
