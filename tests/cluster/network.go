package cluster

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// Network is what the nodes of a cluster reach one another through. What passes from one to another can be held up, delayed or cut.
type Network interface {
	// Cut separates two nodes, which find out at once when they connect.
	Cut(a, b int)
	// Hold lets nothing more pass from one node to another. What is sent meanwhile may arrive when it is let go.
	Hold(from, to int)
	// Delay has everything arrive later than it was sent, where that is possible.
	Delay(from, to int, d time.Duration)
	// Heal makes everything as it was in the beginning.
	Heal()
}

// Isolate does something to all ways from and to a node.
func (c *Cluster) Isolate(node int, do func(from, to int)) {
	for other := range c.Nodes {
		if other != node {
			do(node, other)
			do(other, node)
		}
	}
}

// proxies are a network of processes on one machine: in front of each node a proxy in the test's process, which knows by the first message
// of a connection which node it is from.
//
// They stand in for network namespaces, which not every machine lets tests make: packets are not lost but late, as TCP sees them.
//
// Where nodes speak TLS, nobody can know which one has dialled: such connections can be dropped, and nothing else.
type proxies struct {
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

var _ Network = (*proxies)(nil)

// newProxies has a proxy for each node. Connections to number i go on to nodes[i].
func newProxies(t *testing.T, nodes []string) *proxies {
	t.Helper()
	n := &proxies{ways: map[way]*state{}, pairs: map[*pair]bool{}, changed: make(chan struct{})}
	for i, address := range nodes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		n.listeners, n.addresses = append(n.listeners, l), append(n.addresses, l.Addr().String())
		n.running.Go(func() { n.accept(l, i, address) })
		for j := range len(nodes) + 1 { // the last one stands for all that speak TLS
			n.ways[way{i, j}], n.ways[way{j, i}] = &state{}, &state{}
		}
	}
	t.Cleanup(n.close)
	return n
}

// Cut implements [Network]: it ends the connections, and refuses others.
func (n *proxies) Cut(a, b int) {
	n.change(func() {
		n.ways[way{a, b}].cut, n.ways[way{b, a}].cut = true, true
		for p := range n.pairs {
			if p.joins(a, b) {
				p.reset()
			}
		}
	})
}

// Hold implements [Network].
func (n *proxies) Hold(from, to int) { n.change(func() { n.ways[way{from, to}].held = true }) }

// Delay implements [Network].
func (n *proxies) Delay(from, to int, d time.Duration) {
	n.change(func() { n.ways[way{from, to}].delay = d })
}

// Heal implements [Network].
func (n *proxies) Heal() {
	n.change(func() {
		for _, s := range n.ways {
			*s = state{}
		}
	})
}

// drop ends all connections. Others may be made at once.
func (n *proxies) drop() {
	n.change(func() {
		for p := range n.pairs {
			p.reset()
		}
	})
}

func (n *proxies) change(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do()
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *proxies) close() {
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
func (n *proxies) accept(l net.Listener, target int, address string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		n.running.Go(func() { n.connect(c, target, address) })
	}
}

// connect finds out where a connection is from, and connects it with its target.
func (n *proxies) connect(near net.Conn, target int, address string) {
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

func (n *proxies) enter(p *pair) bool {
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
func (n *proxies) peek(c net.Conn) (first []byte, from int, err error) {
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

// sender returns the number of the node that a first message is from, which for TLS is one that no node has, or -1.
func (n *proxies) sender(message []byte) int {
	const handshakeOfTLS = 22
	if len(message) > 0 && message[0] == handshakeOfTLS {
		return len(n.addresses)
	}
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
func (n *proxies) pass(w way, from, to net.Conn, first []byte) {
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

func (n *proxies) delay(w way) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ways[w].delay
}

// await waits until a way is open. It reports false if it is cut, or the network is closed.
func (n *proxies) await(w way) bool {
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
