package cluster

import (
	"fmt"
	"slices"

	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/wlog"
)

// A version that reads several formats of logs writes the earliest one, until the registry says that all nodes read a later one. From then
// on, a node that cannot read the later format is refused.
const (
	FirstFormat = 1 // read by all versions
	Format      = 1 // the latest that this version reads
)

// Writes returns the format in which logs are to be written. All nodes can read it.
func (n *Node) Writes() uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.id.writes()
}

// SetFormat makes durable that all nodes read a format of logs, so that logs may be written in it from now on. Nodes that cannot read it
// are refused and disconnected. A format below that of an earlier call changes nothing.
func (n *Node) SetFormat(format uint32) error {
	n.admit.Lock()
	defer n.admit.Unlock()
	n.mu.Lock()
	id := n.id
	n.mu.Unlock()
	switch {
	case format <= id.writes():
		return nil
	case format > n.options.Format:
		return fmt.Errorf("format %d of logs: this version reads %d to %d", format, FirstFormat, n.options.Format)
	}
	id.Writes = format
	if err := id.save(n.options.Dir); err != nil {
		return err
	}
	n.mu.Lock()
	n.id = id
	n.mu.Unlock()
	n.options.Log.Info("all nodes read a newer format of logs: this node writes it from now on, and refuses nodes that do not read it", "format", format)
	n.part(format)
	return nil
}

// part disconnects nodes that cannot read a format and were connected before it was written. When they are dialled again, they are refused.
func (n *Node) part(format uint32) {
	others := n.others()
	readers := slices.Clone(others)
	for node, reads := range n.Formats() {
		if reads < format {
			readers = slices.DeleteFunc(readers, func(m peer.Node) bool { return m.ID == node })
		}
	}
	if len(readers) < len(others) {
		n.links.Connect(readers)
		n.links.Connect(others)
	}
}

// Formats returns the latest format of logs that each node reads: of this node, and of nodes with which it was connected.
func (n *Node) Formats() map[wlog.NodeID]uint32 {
	all := map[wlog.NodeID]uint32{n.self().ID: n.options.Format}
	for _, l := range n.links.Status() {
		if l.Format.To > 0 {
			all[l.Node.ID] = l.Format.To
		}
	}
	return all
}
