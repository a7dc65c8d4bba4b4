package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/quorum"
)

// Applicants returns nodes without data that have greeted this node from the addresses of
// other nodes. [Node.Admit] admits them.
func (n *Node) Applicants() []peer.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []peer.Node
	for address, number := range n.applicants {
		all = append(all, peer.Node{ID: number, Address: address})
	}
	sortNodes(all)
	return all
}

// Admit makes durable that a new node has the seat at an address, with a number that no
// node ever had. This node ignores the former node from now on. The owners of the shards
// then give the former node's votes to the new one, see [Node.Replace]. Admit changes
// nothing if the node has the seat already.
func (n *Node) Admit(by peer.Node) error { return n.seat(by, true) }

// seat is Admit. ordered means that an operator wants it: then the former node is not
// restored from the registry, which may not know the new node yet.
func (n *Node) seat(by peer.Node, ordered bool) error {
	n.admit.Lock()
	defer n.admit.Unlock()
	n.mu.Lock()
	id := n.id
	n.mu.Unlock()
	id.Nodes = slices.Clone(id.Nodes)
	at := slices.IndexFunc(id.Nodes, func(m peer.Node) bool { return m.Address == by.Address })
	switch {
	case at < 0:
		return fmt.Errorf("no node of the cluster is at %s: they are at %s", by.Address, strings.Join(addressesOf(id.Nodes), ","))
	case id.Nodes[at].ID == by.ID:
		return nil
	case by.Address == id.Address:
		return fmt.Errorf("node %d cannot take the place of this one", by.ID)
	}
	former := id.Nodes[at].ID
	id.Nodes[at].ID = by.ID
	if err := checkSet(id.Nodes); err != nil {
		return err
	}
	if ordered {
		id.Former = append(slices.DeleteFunc(slices.Clone(id.Former), func(f wlog.NodeID) bool { return f == by.ID || f == former }), former)
	}
	if err := id.save(n.options.Dir); err != nil {
		return err
	}
	n.mu.Lock()
	n.id = id
	delete(n.applicants, by.Address)
	n.mu.Unlock()
	n.links.Connect(n.others())
	if n.options.Replaced != nil {
		n.options.Replaced(former)
	}
	n.options.Log.Info("node admitted", "node", by.Address, "number", by.ID, "former", former)
	return nil
}

// Replace makes a node a replica of a shard that this node owns, gives it the vote of the
// node that had its address before, and returns when that is done. It continues the work of
// an earlier call, at this owner or at an earlier one. The node does the same by itself for
// all shards that it owns, so a caller only needs Replace to learn the progress.
func (n *Node) Replace(ctx context.Context, shard uint32, by peer.Node) error {
	members := n.Members()
	if !slices.Contains(members, by) {
		return fmt.Errorf("node %d at %s is not admitted: %w", by.ID, by.Address, peer.ErrUnknown)
	}
	all := n.Engine().Status()
	at := slices.IndexFunc(all, func(s quorum.ReplicaStatus) bool { return s.Shard == shard })
	if at < 0 {
		return fmt.Errorf("shard %d: there are 0 to %d", shard, n.options.Shards)
	}
	if all[at].Role != quorum.Owner {
		return fmt.Errorf("shard %d: %w", shard, wlog.ErrNotOwner)
	}
	if former, ok := stranger(all[at].Voters, members); ok {
		return n.Engine().Replace(ctx, shard, former, by.ID)
	}
	if missing := newcomers(all[at].Voters, members); len(missing) > 0 {
		return n.Engine().Join(ctx, shard, missing...)
	}
	return nil
}

// stranger returns a voter of a shard that is not a member; ok is false if there is none.
func stranger(voters []wlog.NodeID, members []peer.Node) (node wlog.NodeID, ok bool) {
	for _, v := range voters {
		if !slices.ContainsFunc(members, func(m peer.Node) bool { return m.ID == v }) {
			return v, true
		}
	}
	return 0, false
}

const (
	membersPause = time.Second      // between two checks of the shards
	replaceTime  = 10 * time.Second // until the node checks again: the shard may have another owner
)

// keepMembers works on the shards that this node owns: it gives the votes of former nodes
// to the nodes admitted in their places, and votes to all nodes of a cluster that began
// with the data of one.
func (n *Node) keepMembers(r Roster) {
	select {
	case <-r.Ready(): // before, the node may mistake nodes that were admitted in its absence for former ones
	case <-n.ctx.Done():
		return
	}
	ticker := time.NewTicker(membersPause)
	defer ticker.Stop()
	var done []peer.Node // the members that vote in all shards, as far as this node's replicas know
	var said string
	for {
		changed := r.Changed()
		if err := n.follow(r); err != nil && err.Error() != said {
			said = err.Error()
			n.options.Log.Warn("the members of the cluster that this node knows differ from those in the registry", "error", err)
		}
		if members := n.Members(); !slices.Equal(done, members) && n.replaceAll(members) {
			done = members
		}
		select {
		case <-ticker.C:
		case <-changed:
		case <-n.ctx.Done():
			return
		}
	}
}

// replaceAll works on the shards that this node owns, and reports whether no shard of any owner needs work any more.
func (n *Node) replaceAll(members []peer.Node) (done bool) {
	done = true
	for _, s := range n.Engine().Status() {
		former, strange := stranger(s.Voters, members)
		if s.Role == quorum.Stopped || len(s.Voters) < Size || strange {
			done = false
		}
		missing := newcomers(s.Voters, members)
		if s.Role != quorum.Owner || len(missing) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(n.ctx, replaceTime)
		var err error
		if strange {
			err = n.Engine().Replace(ctx, s.Shard, former, missing[0])
		} else {
			err = n.Engine().Join(ctx, s.Shard, missing...)
		}
		cancel()
		switch {
		case n.ctx.Err() != nil || errors.Is(err, wlog.ErrNotOwner):
		case err != nil:
			n.options.Log.Info("not all nodes have a shard yet", "shard", s.Shard, "missing", missing, "error", err)
		case strange:
			n.options.Log.Info("node replaced in a shard", "shard", s.Shard, "number", missing[0], "former", former)
		default:
			n.options.Log.Info("all nodes have a shard", "shard", s.Shard, "new", missing)
		}
	}
	return done
}

// newcomers returns the members that do not vote in a shard.
func newcomers(voters []wlog.NodeID, members []peer.Node) (all []wlog.NodeID) {
	for _, m := range members {
		if !slices.Contains(voters, m.ID) {
			all = append(all, m.ID)
		}
	}
	return all
}

// Roster is the registry's list of the cluster's members. A node that is away during a
// replacement learns of it from the Roster.
type Roster interface {
	// Ready returns a channel that is closed once this node has applied everything that was
	// durable in the registry when the node started.
	Ready() <-chan struct{}
	// Changed returns a channel that is closed at the next change. To see all changes, ask
	// for the channel first, and read the members then.
	Changed() <-chan struct{}
	// Owned reports whether this node may change the registry.
	Owned() bool
	// Seats returns the members.
	Seats() []peer.Node
	// Seat gives the seat of a former member to another.
	Seat(former wlog.NodeID, by peer.Node) error
}

// Follow makes the node take its members from the registry, and carry replacements through
// in the registry and in the shards, until Close. It is called once.
func (n *Node) Follow(r Roster) { n.duties.Go(func() { n.keepMembers(r) }) }

// follow takes over the registry's members. If an operator has replaced a member at this
// node and the registry does not know that yet, the owner of the registry writes it there.
//
// A registry that has none of the node's members comes from another cluster, with whose
// data this one began. It is about to be changed.
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
