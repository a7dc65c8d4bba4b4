package cluster

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/peer/memnet"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/quorum"
	"github.com/curfewmq/curfew/core/wlog/seg"
)

// machines are the machines of a cluster's nodes, in a bubble.
type machines struct {
	t    *testing.T
	net  memnet.Network
	all  []*machine
	seed uint64

	mu      sync.Mutex // guards the rest, which is the registry
	seats   []peer.Node
	changed chan struct{}
}

// testRoster is the registry as a machine's node sees it. All nodes see at once what its owner writes.
type testRoster struct {
	in   *machines
	node *Node
}

func (r testRoster) Ready() <-chan struct{} {
	ready := make(chan struct{})
	close(ready)
	return ready
}

func (r testRoster) Changed() <-chan struct{} {
	r.in.mu.Lock()
	defer r.in.mu.Unlock()
	return r.in.changed
}

func (r testRoster) Owned() bool {
	return slices.ContainsFunc(r.node.Engine().Status(), func(s quorum.ReplicaStatus) bool { return s.Shard == Registry && s.Role == quorum.Owner })
}

func (r testRoster) Seats() []peer.Node {
	r.in.mu.Lock()
	defer r.in.mu.Unlock()
	return slices.Clone(r.in.seats)
}

func (r testRoster) Seat(former wlog.NodeID, by peer.Node) error {
	r.in.mu.Lock()
	defer r.in.mu.Unlock()
	r.in.seats = append(slices.DeleteFunc(slices.Clone(r.in.seats), func(n peer.Node) bool { return n.ID == former }), by)
	close(r.in.changed)
	r.in.changed = make(chan struct{})
	return nil
}

// machine is one machine. Its disk survives its node.
type machine struct {
	in      *machines
	address string
	fs      *crashfs.FS
	log     *logtest.Log
	change  func(*Options)
	listens string // the address at which others reach it; "" = its node's own

	cancel context.CancelFunc // nil = the node does not run
	opened chan struct{}      // closed when Open has returned
	node   *Node
	err    error
}

func newMachines(t *testing.T, seed uint64) *machines {
	t.Helper()
	ms := &machines{t: t, seed: seed, changed: make(chan struct{})}
	for i, address := range []string{"a:5680", "b:5680", "c:5680"} {
		ms.all = append(ms.all, &machine{in: ms, address: address, fs: crashfs.New(seed*10 + uint64(i)), log: new(logtest.Log)})
	}
	return ms
}

func (m *machine) options() Options {
	o := Options{
		Dir: m.fs, Nodes: []string{"a:5680", "b:5680", "c:5680"}, Advertise: m.address, Name: "test", Election: time.Second, Shards: 2,
		Version: "1", Clock: clock.New(), Log: slog.New(slog.NewTextHandler(m.log, nil)),
		Disk: seg.Options{SegmentSize: 64 << 10}, Dial: m.in.net.Dial,
	}
	if m.change != nil {
		m.change(&o)
	}
	o.Listener = m.in.net.Listen(cmp.Or(m.listens, o.Advertise))
	return o
}

// boot starts the machine's node.
func (m *machine) boot() {
	ctx, cancel := context.WithCancel(m.in.t.Context())
	m.cancel, m.opened, m.node = cancel, make(chan struct{}), nil
	go func() {
		defer close(m.opened)
		if m.node, m.err = Open(ctx, m.options()); m.err == nil {
			m.follow() //nolint:contextcheck // links live until Close
		}
	}()
}

// follow makes the node follow the registry, whose first owner is the first node.
func (m *machine) follow() {
	m.in.mu.Lock()
	if m.in.seats == nil {
		m.in.seats = m.node.Members()
	}
	m.in.mu.Unlock()
	m.node.Follow(testRoster{m.in, m.node})
}

// stop ends the node as an operator does.
func (m *machine) stop() {
	m.cancel()
	<-m.opened
	if m.node != nil {
		if err := m.node.Close(context.Background()); err != nil {
			m.in.t.Errorf("%s: %v", m.address, err)
		}
	}
	m.cancel = nil
}

// losePower ends the node without warning.
func (m *machine) losePower() {
	after := m.fs.LosePower()
	if m.cancel != nil {
		m.cancel()
		<-m.opened
		if m.node != nil {
			m.node.kill()
		}
	}
	m.fs, m.cancel = after, nil
}

// kill ends a node that has no time to hand over its shards, and whose disk takes no more writes.
func (n *Node) kill() {
	n.end()
	_ = n.links.Close()
	n.duties.Wait()
	_ = n.engine.Load().Close()
}

func (m *machine) identity() identity {
	m.in.t.Helper()
	id, _, err := loadIdentity(m.fs)
	if err != nil {
		m.in.t.Fatal(err)
	}
	return id
}

func (m *machine) wantLog(text string) {
	m.in.t.Helper()
	if got := m.log.String(); !strings.Contains(got, text) {
		m.in.t.Errorf("the log of %s has no %q:\n%s", m.address, text, got)
	}
}

// begin boots all machines and waits until their nodes are a cluster.
func (ms *machines) begin() {
	ms.t.Helper()
	for _, m := range ms.all {
		m.boot()
	}
	ms.await()
}

// wantRefused boots a machine whose node refuses to start, for a reason that contains want.
func (m *machine) wantRefused(want string) {
	m.in.t.Helper()
	m.boot()
	<-m.opened
	if m.err == nil || !strings.Contains(m.err.Error(), want) {
		m.in.t.Errorf("%s: got %v, want %q", m.address, m.err, want)
	}
	m.cancel = nil
}

// await waits until the running nodes belong to the cluster.
func (ms *machines) await() {
	ms.t.Helper()
	for _, m := range ms.all {
		if m.cancel == nil {
			continue
		}
		if <-m.opened; m.err != nil {
			ms.t.Fatalf("%s: %v", m.address, m.err)
		}
	}
}

func (ms *machines) stop() {
	for _, m := range ms.all {
		if m.cancel != nil {
			m.stop()
		}
	}
}

// owner returns the log of a shard, opened at the node that owns it, and that node's machine.
func (ms *machines) owner(shard uint32) (*machine, wlog.Log) {
	ms.t.Helper()
	for range 100 {
		for _, m := range ms.all {
			if m.cancel == nil {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			l, err := m.node.Engine().Open(ctx, shard, func(wlog.Index, []byte) error { return nil })
			cancel()
			if err == nil {
				return m, l
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	ms.t.Fatalf("shard %d has no owner", shard)
	return nil, nil
}

// entries returns the entries of a shard as its owner reads them.
func (ms *machines) entries(shard uint32) []string {
	ms.t.Helper()
	m, l := ms.owner(shard)
	if err := l.Close(); err != nil {
		ms.t.Fatal(err)
	}
	var all []string
	l, err := m.node.Engine().Open(context.Background(), shard, func(_ wlog.Index, entry []byte) error {
		all = append(all, string(entry))
		return nil
	})
	if err != nil {
		ms.t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		ms.t.Fatal(err)
	}
	return all
}

// roles returns the address of each shard's owner, as far as the running nodes agree.
func (ms *machines) roles() map[uint32]string {
	owners := map[uint32]string{}
	for _, m := range ms.all {
		if m.cancel == nil {
			continue
		}
		for _, s := range m.node.Engine().Status() {
			if s.Role == quorum.Owner {
				owners[s.Shard] = m.address
			}
		}
	}
	return owners
}
