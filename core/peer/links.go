package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Links are a node's streams from and to the others. Any goroutine may use them.
type Links struct {
	options Options
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup
	callers callers
	reports reports
	skew    skew

	mu       sync.Mutex // guards the rest
	links    map[wlog.NodeID]*link
	incoming map[incomingKey]net.Conn // streams of messages
	servers  [kinds]func(net.Conn, wlog.NodeID)
	closed   bool
}

type incomingKey struct {
	node wlog.NodeID
	kind Kind
}

// maxDialing bounds the concurrent handshakes of Dial with one node. It is half of the
// number that a node accepts from one address, because two nodes may share an address.
const maxDialing = maxCallersOfOne / 2

// New returns links that accept streams of other nodes, and dial none yet.
func New(o Options) *Links {
	o.setDefaults()
	l := &Links{
		options: o, links: map[wlog.NodeID]*link{}, incoming: map[incomingKey]net.Conn{},
		callers: callers{conns: map[net.Conn]netip.Addr{}, of: map[netip.Addr]int{}}, reports: reports{log: o.Log, last: map[string]said{}},
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.running.Go(l.accept)
	return l
}

// ErrClosed says that the links were closed.
var ErrClosed = errors.New("links closed")

// ErrUnknown says that there is no link to a node.
var ErrUnknown = errors.New("no such node in the cluster")

// Connect makes links to exactly these nodes, and ends all others.
func (l *Links) Connect(nodes []Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	for id, k := range l.links {
		if !slices.Contains(nodes, k.node) {
			k.cancel()
			l.hangUp(id)
			delete(l.links, id)
		}
	}
	for _, n := range nodes {
		if l.links[n.ID] == nil {
			l.links[n.ID] = l.newLink(n)
		}
	}
}

// hangUp closes the message streams that a node has opened. The caller holds mu.
func (l *Links) hangUp(node wlog.NodeID) {
	for key, conn := range l.incoming {
		if key.node == node {
			sever(conn)
		}
	}
}

// sever closes a connection without TLS's close notification, which waits seconds for a node that does not read, while callers hold locks.
func sever(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	conn.Close()
}

func (l *Links) link(node wlog.NodeID) *link {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.links[node]
}

// all returns the links, sorted by their nodes' addresses.
func (l *Links) all() []*link {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.links), func(a, b *link) int { return compareNodes(a.node, b.node) })
}

// Serve passes streams of a kind, Relay or HTTP, to fn, which owns them, on new goroutines. Close does not wait for these.
func (l *Links) Serve(kind Kind, fn func(conn net.Conn, from wlog.NodeID)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.servers[kind] = fn
}

func (l *Links) server(kind Kind) func(net.Conn, wlog.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.servers[kind]
}

// Send sends a message about a shard to a node. It does not wait, and owns the message. done, unless nil, is called once: with
// true when the message was handed to the network, with false when it was dropped or may be lost. It may be called before Send returns.
func (l *Links) Send(to wlog.NodeID, shard uint32, bulk bool, message []byte, done func(delivered bool)) {
	t := letter{shard, message, done}
	k := l.link(to)
	if k == nil || len(message) > l.options.MaxMessage {
		t.settle(false)
		return
	}
	s := k.small
	if bulk || len(message) > maxSmall {
		s = k.bulk
	}
	if !s.box.put(t) {
		t.settle(false)
	}
}

// Dial opens a stream to a node, which the caller owns. The node passes it to the function given to its Serve. Errors name the node.
func (l *Links) Dial(ctx context.Context, to wlog.NodeID, kind Kind) (net.Conn, error) {
	k := l.link(to)
	if k == nil {
		return nil, fmt.Errorf("node %d: %w", to, ErrUnknown)
	}
	select {
	case k.dialing <- struct{}{}:
		defer func() { <-k.dialing }()
	case <-ctx.Done():
		return nil, fmt.Errorf("node %s: %w", k.node.Address, ctx.Err())
	}
	conn, _, err := l.connect(ctx, k.node.Address, to, kind)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", k.node.Address, err)
	}
	return conn, nil
}

// Greet exchanges Hellos with the node at an address, and returns that node's, perhaps together with the error that the node refuses.
func (l *Links) Greet(ctx context.Context, address string) (*Hello, error) {
	conn, h, err := l.connect(ctx, address, 0, Greeting)
	if err != nil {
		return h, fmt.Errorf("node %s: %w", address, err)
	}
	return h, conn.Close()
}

// Close ends all message streams, and accepts no more streams. Streams that were handed over stay.
func (l *Links) Close() error {
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if closed {
		return nil
	}
	l.cancel()
	err := l.options.Listener.Close()
	l.callers.hangUp()
	l.mu.Lock()
	for _, conn := range l.incoming {
		sever(conn)
	}
	l.mu.Unlock()
	l.running.Wait()
	return err
}

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
