package cluster

import (
	"errors"
	"fmt"
	"slices"

	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/wlog"
)

// Roster is the registry's list of the cluster's members. A node that is away during a replacement learns of it from the Roster.
type Roster interface {
	// Ready returns a channel that is closed once this node has applied everything that was durable in the registry when the node started.
	Ready() <-chan struct{}
	// Changed returns a channel that is closed at the next change. To see all changes, ask for the channel first, and read the members then.
	Changed() <-chan struct{}
	// Owned reports whether this node may change the registry.
	Owned() bool
	// Seats returns the members.
	Seats() []peer.Node
	// Seat gives the seat of a former member to another.
	Seat(former wlog.NodeID, by peer.Node) error
}

// Follow makes the node take its members from the registry, and carry replacements through in the registry and in the shards, until Close.
// It is called once.
func (n *Node) Follow(r Roster) { n.duties.Go(func() { n.keepMembers(r) }) }

// follow takes over the registry's members. If an operator has replaced a member at this node and the registry does not know that yet, the
// owner of the registry writes it there.
//
// A registry that has none of the node's members comes from another cluster, with whose data this one began. It is about to be changed.
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
		case r.Owned(): // at its own address, the owner of the registry is right
			all = errors.Join(all, r.Seat(seat.ID, peer.Node{ID: own, Address: seat.Address}))
		case replaced:
			all = errors.Join(all, fmt.Errorf("the registry still has node %d at %s, in whose place this node has admitted node %d: if this message persists, run curfew ctl cluster replace %s again",
				seat.ID, seat.Address, own, seat.Address))
		}
	}
	return all
}
