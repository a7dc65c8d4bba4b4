package peer

import (
	"net"
	"net/netip"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Status is the state of the link to a node.
type Status struct {
	Node      Node
	Connected bool           // messages can be sent to the node
	Since     hook.Instant   // when that began, or ended; 0 = it was never connected
	Local     netip.AddrPort // address of the stream that this node has dialled; zero = there is none
	Remote    netip.AddrPort // address of the node at the other end
	Version   string         // version of the node's broker, as last announced; "" = unknown
	Format    Range          // formats of logs that the node reads, as last announced; zero = unknown
	Sent      uint64         // bytes of messages sent to the node
	Received  uint64         // bytes of messages received from it
	Queued    int            // bytes of messages that wait for the node, or are being sent
	Dropped   uint64         // messages that were not sent
	Clock     bool           // RoundTrip and Offset are known
	RoundTrip time.Duration
	Offset    time.Duration // how far the node's clock is ahead of this one's
	Err       error         // why the node is not connected; nil = it is, or has not been dialled yet
}

// Status returns the state of all links, sorted by their nodes' addresses.
func (l *Links) Status() []Status {
	var all []Status
	for _, k := range l.all() {
		all = append(all, k.status())
	}
	return all
}

func (k *link) status() Status {
	st := Status{Node: k.node, Connected: true, Received: k.in.Load()}
	for _, s := range [...]*sender{k.small, k.bulk} {
		bytes, dropped := s.box.counts()
		st.Queued += bytes
		st.Dropped += dropped
		st.Sent += s.out.Load()
		s.mu.Lock()
		st.Connected = st.Connected && s.conn != nil
		st.Since = max(st.Since, s.since)
		if s.kind == Small && s.conn != nil {
			st.Local, st.Remote = addrPortOf(s.conn.LocalAddr()), addrPortOf(s.conn.RemoteAddr())
		}
		if s.version != "" {
			st.Version, st.Format = s.version, s.format
		}
		if s.err != nil {
			st.Err = s.err
		}
		s.mu.Unlock()
	}
	if c, ok := k.clock(); ok {
		st.Clock, st.RoundTrip, st.Offset = true, c.trip, c.offset
	}
	return st
}

func addrPortOf(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		p := tcp.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}
