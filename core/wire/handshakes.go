package wire

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// handshakes are the connections that have not opened a virtual host yet: nobody knows who they are. When there are as many as
// there may be, the next one takes the place of the oldest of the source that has most of them, so that nobody who only
// connects keeps others out. The server's mu guards it.
type handshakes struct {
	most     int // 0 = any number
	open     []*conn
	bySource map[netip.Prefix]int

	crowdedOut int          // since it was said last
	loggedAt   hook.Instant // when that was
}

// logInterval is how often at most it is said that handshakes are crowded out.
const logInterval = 10 * time.Second

// enter takes a connection in, and returns one whose place it takes, nil if there is room.
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

// oldestOfBusiest returns the oldest of the source that has most of them.
func (h *handshakes) oldestOfBusiest() *conn {
	most := 0
	for _, n := range h.bySource {
		most = max(most, n)
	}
	for _, c := range h.open {
		if h.bySource[c.source] == most {
			return c
		}
	}
	return nil // there is none
}

// leave is told of a connection that is not in the handshake any more; it may have been told before.
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

// count counts one that was crowded out, and returns how many those were if it is time to say so.
func (h *handshakes) count(now hook.Instant) (crowdedOut int) {
	h.crowdedOut++
	if h.loggedAt != 0 && now.Sub(h.loggedAt) < logInterval {
		return 0
	}
	crowdedOut, h.crowdedOut, h.loggedAt = h.crowdedOut, 0, now
	return crowdedOut
}

// sourceOf is where a socket comes from: an address, of IPv6 the network that one machine has at least.
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
	prefix, _ := address.WithZone("").Prefix(bits) // both have as many
	return prefix
}
