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

// Applicants returns nodes without data that have said hello from the addresses of others: [Node.Admit] lets them in.
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

// Admit makes it durable that the node at an address is now another one, with a number that no node has had. The former is not listened
// to any more. The owners of the shards then give its votes to the new one, see [Node.Replace]. Admit changes nothing if the node has
// that number.
func (n *Node) Admit(by peer.Node) error { return n.seat(by, true) }

// seat is Admit. ordered means that an operator wants it: then the registry, which may not know it yet, does not bring the former back.
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

// Replace makes a node a replica of a shard that this node owns, and gives it the vote of the one that had its address before. It
// returns when that is done. What an earlier call has begun, here or at an earlier owner, it goes on with. The node does the same by
// itself for all shards that it owns, so that this only needs to be called to learn how it goes.
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

// stranger returns a node that votes about a shard, but is none of the members; ok is false if there is none.
func stranger(voters []wlog.NodeID, members []peer.Node) (node wlog.NodeID, ok bool) {
	for _, v := range voters {
		if !slices.ContainsFunc(members, func(m peer.Node) bool { return m.ID == v }) {
			return v, true
		}
	}
	return 0, false
}

const (
	membersPause = time.Second      // between two looks at the shards
	replaceTime  = 10 * time.Second // until the node looks again what there is to do: it may have another owner
)

// keepMembers gives the votes of former nodes to those that were admitted in their places, in the shards that this node owns, and votes to
// all nodes of a cluster that began with the data of one.
func (n *Node) keepMembers(r Roster) {
	select {
	case <-r.Ready(): // before, the node may take for former whoever was admitted while it was away
	case <-n.ctx.Done():
		return
	}
	ticker := time.NewTicker(membersPause)
	defer ticker.Stop()
	var done []peer.Node // the members that vote about all shards, as far as this node's replicas know
	var said string
	for {
		changed := r.Changed()
		if err := n.follow(r); err != nil && err.Error() != said {
			said = err.Error()
			n.options.Log.Warn("who is a member of the cluster is not as the registry has it", "error", err)
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

// replaceAll does what is to be done in the shards that this node owns, and reports whether nothing is to be done in any.
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

// newcomers returns the members that do not vote about a shard.
func newcomers(voters []wlog.NodeID, members []peer.Node) (all []wlog.NodeID) {
	for _, m := range members {
		if !slices.Contains(voters, m.ID) {
			all = append(all, m.ID)
		}
	}
	return all
}
