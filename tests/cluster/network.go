package cluster

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// Network is what the nodes of a cluster reach one another through: in front of each a proxy in the test's process, which knows by the
// first message of a connection which node it is from. What passes from one node to another can be held up, delayed or cut.
//
// It stands in for network namespaces, which not every machine lets tests make: packets are not lost but late, as TCP sees them.
type Network struct {
	addresses []string // of the proxies: what nodes know each other by
	listeners []net.Listener
	running   sync.WaitGroup

	mu      sync.Mutex // guards what follows
	ways    map[way]*state
	pairs   map[*pair]bool
	changed chan struct{} // closed and replaced when a state changes
	closed  bool
}

// way is from one node to another.
type way struct{ from, to int }

// state is how it is there.
type state struct {
	held  bool
	cut   bool
	delay time.Duration
}

// pair is a connection between two nodes, in two halves.
type pair struct {
	dialler, target int
	near, far       net.Conn
}

// newNetwork has a proxy for each node. Connections to number i go on to nodes[i].
func newNetwork(t *testing.T, nodes []string) *Network {
	t.Helper()
	n := &Network{ways: map[way]*state{}, pairs: map[*pair]bool{}, changed: make(chan struct{})}
	for i, address := range nodes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		n.listeners, n.addresses = append(n.listeners, l), append(n.addresses, l.Addr().String())
		n.running.Go(func() { n.accept(l, i, address) })
		for j := range nodes {
			n.ways[way{i, j}] = &state{}
		}
	}
	t.Cleanup(n.close)
	return n
}

// Cut ends the connections between two nodes, and refuses others.
func (n *Network) Cut(a, b int) {
	n.change(func() {
		n.ways[way{a, b}].cut, n.ways[way{b, a}].cut = true, true
		for p := range n.pairs {
			if p.joins(a, b) {
				p.reset()
			}
		}
	})
}

// Hold lets nothing more pass from one node to another. What is sent meanwhile arrives when it is let go.
func (n *Network) Hold(from, to int) { n.change(func() { n.ways[way{from, to}].held = true }) }

// Delay has everything arrive later than it was sent.
func (n *Network) Delay(from, to int, d time.Duration) {
	n.change(func() { n.ways[way{from, to}].delay = d })
}

// Isolate does something to all ways from and to a node.
func (n *Network) Isolate(node int, do func(from, to int)) {
	for other := range n.listeners {
		if other != node {
			do(node, other)
			do(other, node)
		}
	}
}

// Heal makes everything as it was in the beginning.
func (n *Network) Heal() {
	n.change(func() {
		for _, s := range n.ways {
			*s = state{}
		}
	})
}

func (n *Network) change(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do()
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *Network) close() {
	n.change(func() {
		n.closed = true
		for p := range n.pairs {
			p.reset()
		}
	})
	for _, l := range n.listeners {
		_ = l.Close()
	}
	n.running.Wait()
}

func (p *pair) joins(a, b int) bool {
	return p.dialler == a && p.target == b || p.dialler == b && p.target == a
}

func (p *pair) reset() {
	for _, c := range []net.Conn{p.near, p.far} {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // as if the cable were cut and the other side had given up
		}
		_ = c.Close()
	}
}

// accept takes connections to a node.
func (n *Network) accept(l net.Listener, target int, address string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		n.running.Go(func() { n.connect(c, target, address) })
	}
}

// connect finds out where a connection is from, and connects it with its target.
func (n *Network) connect(near net.Conn, target int, address string) {
	first, from, err := n.peek(near)
	if err != nil {
		_ = near.Close()
		return
	}
	far, err := net.Dial("tcp", address)
	if err != nil {
		_ = near.Close()
		return
	}
	p := &pair{dialler: from, target: target, near: near, far: far}
	if !n.enter(p) {
		p.reset()
		return
	}
	var passing sync.WaitGroup
	passing.Go(func() { n.pass(way{from, target}, near, far, first) })
	passing.Go(func() { n.pass(way{target, from}, far, near, nil) })
	passing.Wait()
	n.mu.Lock()
	delete(n.pairs, p)
	n.mu.Unlock()
	_ = near.Close()
	_ = far.Close()
}

func (n *Network) enter(p *pair) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.ways[way{p.dialler, p.target}].cut {
		return false
	}
	n.pairs[p] = true
	return true
}

var errStranger = errors.New("the connection is not from a node")

// peek reads until a connection has said from which address it is, and returns what it has read.
func (n *Network) peek(c net.Conn) (first []byte, from int, err error) {
	const most, patience = 16 << 10, 10 * time.Second
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, 0, err
	}
	buf := make([]byte, most)
	for have := 0; have < most; {
		k, err := c.Read(buf[have:])
		have += k
		if from := n.sender(buf[:have]); from >= 0 {
			return buf[:have], from, c.SetReadDeadline(time.Time{})
		}
		if err != nil {
			return nil, 0, err
		}
	}
	return nil, 0, errStranger
}

// sender returns the number of the node that a first message is from, or -1.
func (n *Network) sender(message []byte) int {
	_, rest, ok := bytes.Cut(message, []byte(`"address":"`))
	address, _, whole := bytes.Cut(rest, []byte(`"`))
	if !ok || !whole {
		return -1
	}
	for i, a := range n.addresses {
		if string(address) == a {
			return i
		}
	}
	return -1
}

// parcel is bytes on their way.
type parcel struct {
	data []byte
	due  time.Time
}

// pass passes on what comes one way, until the connection ends.
func (n *Network) pass(w way, from, to net.Conn, first []byte) {
	const onTheWay = 256 // parcels
	parcels := make(chan parcel, onTheWay)
	go func() {
		defer close(parcels)
		if len(first) > 0 {
			parcels <- parcel{first, time.Now().Add(n.delay(w))}
		}
		for {
			buf := make([]byte, 32<<10)
			k, err := from.Read(buf)
			if k > 0 {
				parcels <- parcel{buf[:k], time.Now().Add(n.delay(w))}
			}
			if err != nil {
				return
			}
		}
	}()
	broken := false
	for p := range parcels {
		time.Sleep(time.Until(p.due))
		if broken || !n.await(w) {
			broken = true
			_ = from.Close()
			continue
		}
		if _, err := to.Write(p.data); err != nil {
			broken = true
			_ = from.Close()
		}
	}
	if n.await(w) {
		if tcp, ok := to.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	}
}

func (n *Network) delay(w way) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ways[w].delay
}

// await waits until a way is open. It reports false if it is cut, or the network is closed.
func (n *Network) await(w way) bool {
	for {
		n.mu.Lock()
		s, changed, closed := *n.ways[w], n.changed, n.closed
		n.mu.Unlock()
		switch {
		case s.cut || closed:
			return false
		case !s.held:
			return true
		}
		<-changed
	}
}
