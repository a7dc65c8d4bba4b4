package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/wlog"
)

// formatPause is between two looks at what the nodes read. Nobody waits for that: a node was replaced by a later version.
const formatPause = time.Second

// keepFormats has the registry know the nodes and what they read, whenever this node owns it, and this node what all of them read, until
// ctx ends.
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
			m.log.Warn("what the nodes of the cluster read is not up to date", "error", err)
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// describeMembers changes what the registry says of the nodes to what they have said, if this node owns the registry.
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
	case reads < m.Writes(): // it is not connected, or about to be refused: what was said of the node at this address holds
		return nil
	case at < 0:
		return r.SetMember(now)
	case known[at].Number != n.ID: // who is right, cluster.Node finds out
		return nil
	case known[at] != now:
		return r.SetMember(now)
	}
	return nil
}
