package wire

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// handshakes are the connections that have not opened a virtual host yet. At the limit, a new connection displaces the oldest one from
// the source with the most handshakes, so that a source that only connects cannot keep others out. The server's mu guards it.
type handshakes struct {
	most     int // 0 means any number
	open     []*conn
	bySource map[netip.Prefix]int

	crowdedOut int          // since the last log line
	loggedAt   hook.Instant // 0 means never
}

// logInterval is the shortest time between log lines about handshakes that were crowded out.
const logInterval = 10 * time.Second

// enter adds a connection, and returns the connection that it displaces; nil = none.
func (h *handshakes) enter(c *conn) (crowdedOut *conn) {
	if h.most == 0 {
		return nil
	}
	if len(h.open) >= h.most {
		crowdedOut = h.oldestOfBusiest()
		h.leave(crowdedOut)
	}
	if h.bySource == nil {
		h.bySource = map[netip.Prefix]int{}
	}
	h.open = append(h.open, c)
	h.bySource[c.source]++
	return crowdedOut
}

// oldestOfBusiest returns the oldest handshake of the source that has the most.
func (h *handshakes) oldestOfBusiest() *conn {
	most := slices.Max(slices.Collect(maps.Values(h.bySource)))
	return h.open[slices.IndexFunc(h.open, func(c *conn) bool { return h.bySource[c.source] == most })]
}

// leave removes a connection, unless that has been done before.
func (h *handshakes) leave(c *conn) {
	i := slices.Index(h.open, c)
	if i < 0 {
		return
	}
	h.open = slices.Delete(h.open, i, i+1)
	if h.bySource[c.source]--; h.bySource[c.source] == 0 {
		delete(h.bySource, c.source)
	}
}

// count counts a displaced connection. If it is time to log, it returns how many were displaced since the last log line, otherwise 0.
func (h *handshakes) count(now hook.Instant) (crowdedOut int) {
	h.crowdedOut++
	if h.loggedAt != 0 && now.Sub(h.loggedAt) < logInterval {
		return 0
	}
	crowdedOut, h.crowdedOut, h.loggedAt = h.crowdedOut, 0, now
	return crowdedOut
}

// sourceOf returns the source of a socket: an IPv4 address, or an IPv6 /64, the smallest network that a host usually has.
func sourceOf(socket net.Conn) netip.Prefix {
	tcp, ok := socket.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	address := tcp.AddrPort().Addr().Unmap()
	bits := 64
	if address.Is4() {
		bits = 32
	}
	prefix, _ := address.WithZone("").Prefix(bits) // the address has as many bits
	return prefix
}
