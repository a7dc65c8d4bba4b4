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
