package peer

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/core/peer/memnet"
	"github.com/curfewmq/curfew/core/wlog"
)

// fabric is a network in memory, for a bubble, with its nodes.
type fabric struct {
	memnet.Network
	all []*testNode
}

func newFabric() *fabric { return &fabric{} }

// testNode is a node that records its callbacks.
type testNode struct {
	*Links
	node Node
	log  *logtest.Log

	mu    sync.Mutex // guards the rest
	got   []string
	gone  []wlog.NodeID
	still []wlog.NodeID // nodes reported by Silent
	skews []SkewLevel
	heard []ShardTime
	short []uint32
}

func nodeOf(id wlog.NodeID) Node { return Node{id, fmt.Sprintf("node%d:5680", id)} }

// node starts a node without links.
func (f *fabric) node(t *testing.T, id wlog.NodeID, change ...func(*Options)) *testNode {
	t.Helper()
	n := &testNode{node: nodeOf(id), log: new(logtest.Log)}
	o := Options{
		Self: func() Hello {
			return Hello{Format: Range{1, 1}, Node: id, Address: n.node.Address, Name: "test", Version: "1.2.3", Shards: 3}
		},
		Check:    func(Hello) error { return nil },
		Listener: f.Listen(n.node.Address),
		Dial:     f.Dial,
		Clock:    clock.New(),
		Log:      slog.New(slog.NewTextHandler(n.log, nil)),
		Received: func(from wlog.NodeID, shard uint32, message []byte) {
			n.note(func() { n.got = append(n.got, fmt.Sprintf("%d/%d %s", from, shard, message)) })
		},
		Gone:   func(id wlog.NodeID) { n.note(func() { n.gone = append(n.gone, id) }) },
		Silent: func(id wlog.NodeID) { n.note(func() { n.still = append(n.still, id) }) },
		Skewed: func(s Skew) { n.note(func() { n.skews = append(n.skews, s.Level) }) },
		Heard: func(_ wlog.NodeID, times []ShardTime, short []uint32) {
			n.note(func() { n.heard, n.short = append(n.heard, times...), append(n.short, short...) })
		},
	}
	for _, c := range change {
		c(&o)
	}
	n.Links = New(o)
	f.all = append(f.all, n)
	t.Cleanup(func() { n.Close() })
	return n
}

// connect links all nodes of the fabric with one another.
func (f *fabric) connect() {
	var nodes []Node
	for _, n := range f.all {
		nodes = append(nodes, n.node)
	}
	for i, n := range f.all {
		n.Connect(slices.Delete(slices.Clone(nodes), i, i+1))
	}
	synctest.Wait()
	time.Sleep(100 * time.Millisecond) // a node that was not up yet is dialled again
	synctest.Wait()
}

func (f *fabric) close() {
	for _, n := range f.all {
		n.Close()
	}
}

func (n *testNode) note(fn func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fn()
}

func (n *testNode) received() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.got)
}

func (n *testNode) goneNodes() []wlog.NodeID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.gone)
}

func (n *testNode) wantLog(t *testing.T, text string) {
	t.Helper()
	if got := n.log.String(); !strings.Contains(got, text) {
		t.Errorf("the log of %s has no %q:\n%s", n.node.Address, text, got)
	}
}

func (n *testNode) connectedTo(id wlog.NodeID) bool {
	for _, s := range n.Status() {
		if s.Node.ID == id {
			return s.Connected
		}
	}
	return false
}
