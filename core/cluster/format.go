package cluster

import (
	"fmt"
	"slices"

	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/wlog"
)

// Versions that read several formats of logs write the earliest, until the registry says that all nodes read a later one. From then on a
// node that does not is refused.
const (
	FirstFormat = 1 // read by all versions
	Format      = 1 // the latest that this version reads
)

// Writes returns the format in which logs are to be written: all nodes read it.
func (n *Node) Writes() uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.id.writes()
}

// SetFormat makes durable that all nodes read a format of logs, so that from now on logs may be written in it. Nodes that do not read it
// are refused, and parted from. An earlier format than that of another call changes nothing.
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
	n.options.Log.Info("all nodes read a later format of logs: it is written from now on, and nodes that do not read it are refused", "format", format)
	n.part(format)
	return nil
}

// part ends the links with nodes that were connected before a format was written which they do not read. They are dialled again, and refused.
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

// Formats returns the latest format of logs that nodes read: this one, and those that it has been connected with.
func (n *Node) Formats() map[wlog.NodeID]uint32 {
	all := map[wlog.NodeID]uint32{n.self().ID: n.options.Format}
	for _, l := range n.links.Status() {
		if l.Format.To > 0 {
			all[l.Node.ID] = l.Format.To
		}
	}
	return all
}
