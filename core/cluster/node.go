// Package cluster is a node of a cluster: its identity, the first start of a cluster, and the engine that keeps logs on a majority of the
// nodes, with the links between nodes.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/quorum"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// Size is the number of nodes of a cluster.
const Size = 3

// Registry is the shard that names the place of everything else.
const Registry = 0

// Options of a [Node]. Errors about them name the configuration key.
type Options struct {
	Dir       vfs.FS        // the folder of the node, see [Folder]
	Nodes     []string      // cluster.nodes: the addresses of all nodes
	Advertise string        // cluster.advertise: the address of this node among them
	Name      string        // cluster.name
	Election  time.Duration // cluster.election
	Stall     time.Duration // cluster.disk-stall; 0 = 5 s
	Shards    uint32        // cluster.shards: logs of vhosts; the registry is one more
	Listener  net.Listener  // for connections of other nodes; the Node closes it
	TLS       *peer.TLS     // nil = without TLS
	Version   string        // of the broker
	Format    uint32        // latest format of logs that this version reads; 0 = [Format]
	Clock     clock.Clock
	Log       *slog.Logger
	Disk      seg.Options // of the local logs; Clock, Durability and Short need not be set

	// Skewed is called when this node's clock goes wrong or right, see [peer.Options]; nil = it is not called.
	Skewed func(peer.Skew)
	// Crowded is called again and again with a shard for whose log another node's disk
	// lacks space, and once when it has enough; nil = it is not called. Calls follow one
	// another, and must not block.
	Crowded func(shard uint32, low bool)
	// Replaced is called with each node in whose place another was admitted; nil = it is not called. It must not block.
	Replaced func(former wlog.NodeID)
	// Silent is called with nodes that have been silent for ten seconds, see [peer.Options]; nil = it is not called. It must not block.
	Silent func(wlog.NodeID)
	// Dial connects to the address of a node; nil = by TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Node is this broker as a node of a cluster. Any goroutine may call its methods.
type Node struct {
	options   Options
	links     *peer.Links
	local     *seg.Engine
	engine    atomic.Pointer[quorum.Engine] // nil until it runs
	admit     sync.Mutex                    // held while the file changes after Open
	skew      chan peer.SkewLevel           // the latest level on which keepClock has not acted
	shortages shortages
	leaving   atomic.Bool // Leave was called
	duties    sync.WaitGroup
	ctx       context.Context // ends with Close
	end       context.CancelFunc

	mu         sync.Mutex // guards the rest
	id         identity
	joins      string                 // id of the cluster that the node wants to begin; "" = it does not know all nodes, or belongs to a cluster
	applicants map[string]wlog.NodeID // nodes that asked for the place of another node, by address
}

// Open makes the node part of its cluster. At the very first start it waits for all other nodes, until ctx ends; later it waits for none.
func Open(ctx context.Context, o Options) (*Node, error) {
	n, err := prepare(o)
	if err != nil {
		return nil, errors.Join(err, o.Listener.Close())
	}
	n.ctx, n.end = context.WithCancel(context.WithoutCancel(ctx)) // before the links and the engine run, whose calls use it
	n.links = peer.New(n.linkOptions())
	if !n.id.member() {
		err = n.first(ctx)
	}
	if err == nil {
		err = n.start(ctx)
	} else {
		err = errors.Join(err, n.local.Close())
	}
	if err != nil {
		n.end()
		return nil, errors.Join(err, n.links.Close())
	}
	n.duties.Go(n.keepClock)
	return n, nil
}

// prepare opens the folder and finds out the node's identity.
func prepare(o Options) (*Node, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.Format = cmp.Or(o.Format, Format)
	n := &Node{options: o, skew: make(chan peer.SkewLevel, 1), applicants: map[string]wlog.NodeID{}, shortages: shortages{crowded: o.Crowded}}
	disk := o.Disk
	disk.Clock, disk.Durability, disk.Short = o.Clock, seg.Fsync, []uint32{Registry}
	disk.Events.Space = n.shortages.note(disk.Events.Space)
	var err error
	if n.local, err = seg.New(o.Dir, disk); err != nil { // it locks the folder
		return nil, err
	}
	if err := n.identify(); err != nil {
		return nil, errors.Join(err, n.local.Close())
	}
	return n, nil
}

func (o *Options) check() error {
	list := strings.Join(o.Nodes, ",")
	for i, address := range o.Nodes {
		if slices.Contains(o.Nodes[:i], address) {
			return fmt.Errorf("cluster.nodes %s has %s twice", list, address)
		}
	}
	switch {
	case len(o.Nodes) != Size:
		return fmt.Errorf("cluster.nodes %s has %d addresses: a cluster has three nodes", list, len(o.Nodes))
	case !slices.Contains(o.Nodes, o.Advertise):
		return fmt.Errorf("cluster.advertise %s is not among cluster.nodes %s", o.Advertise, list)
	case o.Shards < 1 || o.Shards > 255:
		return fmt.Errorf("cluster.shards %d: 1 to 255 are allowed", o.Shards)
	}
	return nil
}

// identify reads the node's identity from the folder, or makes a new one.
func (n *Node) identify() error {
	id, ok, err := loadIdentity(n.options.Dir)
	if err != nil {
		return err
	}
	if ok && id.Address == "" && id.Seed == id.Number { // import and restore do not know the address of the future node
		id.Address = n.options.Advertise // become saves the address, so that a refused start changes nothing
	}
	if ok {
		n.id = id
		return n.options.checkIdentity(&id)
	}
	all, err := n.options.Dir.List()
	if err != nil {
		return err
	}
	for _, f := range all {
		if _, _, log := seg.LogFile(f.Name); log {
			return fmt.Errorf("%w: there are logs, but no %s, which says to which node they belong", wlog.ErrDamaged, identityFile)
		}
	}
	n.id = identity{Format: identityFormat, Number: newNumber(), Address: n.options.Advertise}
	return n.id.save(n.options.Dir)
}

// checkIdentity returns an error if the configuration contradicts the identity in the folder.
func (o *Options) checkIdentity(id *identity) error {
	if id.writes() > o.Format {
		return fmt.Errorf("%w: the cluster of this data folder writes logs of format %d, and version %s reads up to %d", wlog.ErrNewer, id.writes(), o.Version, o.Format)
	}
	if id.Address != o.Advertise {
		return fmt.Errorf("cluster.advertise is %s, but the data folder belongs to the node at %s", o.Advertise, id.Address)
	}
	if id.Seed == id.Number && id.Shards != o.Shards {
		return fmt.Errorf("cluster.shards is %d, but the data folder was made with %d", o.Shards, id.Shards)
	}
	if !id.member() {
		return nil
	}
	own, known := slices.Sorted(slices.Values(o.Nodes)), addressesOf(id.Nodes)
	switch {
	case !slices.Equal(own, known):
		return fmt.Errorf("cluster.nodes are %s, but the data folder belongs to a cluster of %s", strings.Join(own, ","), strings.Join(known, ","))
	case id.Name != o.Name:
		return fmt.Errorf("cluster.name is %q, but the data folder belongs to the cluster %q", o.Name, id.Name)
	case id.Shards != o.Shards:
		return fmt.Errorf("cluster.shards is %d, but the data folder belongs to a cluster with %d, which is fixed at the first start", o.Shards, id.Shards)
	}
	return nil
}

// start starts the engine and the links. If it fails, it closes the local logs.
func (n *Node) start(ctx context.Context) error {
	if err := n.checkLogs(ctx); err != nil {
		return errors.Join(err, n.local.Close())
	}
	o := quorum.Options{
		Local: n.local, Node: n.id.Number, Shards: n.options.Shards + 1, Election: n.options.Election, Stall: n.options.Stall, Clock: n.options.Clock, Lost: n.shardLost,
		Prompt: []uint32{0}, // the registry
		Send:   func(to wlog.NodeID, m quorum.Message) { n.links.Send(to, m.Shard, m.Bulk, m.Bytes, m.Done) },
	}
	if n.id.founder() && !n.id.Started && n.id.Seed == 0 {
		o.Voters = n.id.Founders
	}
	engine, err := quorum.New(o)
	if err != nil {
		return errors.Join(err, n.local.Close())
	}
	if err := engine.StartAll(ctx); err != nil {
		return errors.Join(err, engine.Close())
	}
	if err := n.started(); err != nil {
		return errors.Join(err, engine.Close())
	}
	n.engine.Store(engine)
	n.links.Connect(n.others()) //nolint:contextcheck // links live until Close
	return nil
}

// shardLost logs that this node has lost a shard, and the reason.
func (n *Node) shardLost(shard uint32, owner wlog.NodeID, why error) {
	level := slog.LevelWarn
	if errors.Is(why, quorum.ErrLeaving) || errors.Is(why, quorum.ErrGiven) {
		level = slog.LevelInfo
	}
	log := n.options.Log.With("shard", shard, "reason", why)
	for _, m := range n.Members() {
		if m.ID == owner {
			log = log.With("owner", m.Address)
		}
	}
	log.Log(n.ctx, level, "this node does not own a shard any more")
}

// checkLogs returns an error if a log is missing that was there before: without it the node would have forgotten its votes.
func (n *Node) checkLogs(ctx context.Context) error {
	if !n.id.Started {
		return nil
	}
	shards, err := n.local.Shards(ctx)
	if err != nil {
		return err
	}
	for shard := range n.options.Shards + 1 {
		if !slices.Contains(shards, shard) {
			return fmt.Errorf("%w: the log of shard %d is missing; empty the data folder, start the node, and run curfew ctl cluster replace %s on another one",
				wlog.ErrDamaged, shard, n.id.Address)
		}
	}
	return nil
}

// started makes durable that all shards have a log.
func (n *Node) started() error {
	n.mu.Lock()
	id := n.id
	n.mu.Unlock()
	if id.Started {
		return nil
	}
	id.Started = true
	if err := id.save(n.options.Dir); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.id = id
	return nil
}

func (n *Node) linkOptions() peer.Options {
	return peer.Options{
		Self: n.hello, Check: n.check, Listener: n.options.Listener, Dial: n.options.Dial, TLS: n.options.TLS,
		Clock: n.options.Clock, Log: n.options.Log, MaxMessage: quorum.MaxMessage,
		Received: n.received, Gone: n.gone, Silent: n.options.Silent, Times: n.times, Short: n.shortages.own, Heard: n.heard, Skewed: n.skewed,
	}
}

// received passes a message to the engine. None arrives before the engine runs, because no link exists before.
func (n *Node) received(from wlog.NodeID, shard uint32, message []byte) {
	if err := n.engine.Load().Receive(from, shard, message); err != nil {
		n.options.Log.Warn("message of a node refused", "node", from, "error", err)
	}
}

func (n *Node) gone(node wlog.NodeID) { n.engine.Load().Gone(node) }

// times returns the times of the shards that the node owns, for the others.
func (n *Node) times() []peer.ShardTime {
	own := n.engine.Load().Times()
	all := make([]peer.ShardTime, len(own))
	for i, t := range own {
		all[i] = peer.ShardTime(t)
	}
	return all
}

// heard takes another node's shard times, and the shards for which its disk lacks space.
func (n *Node) heard(from wlog.NodeID, times []peer.ShardTime, short []uint32) {
	n.shortages.heard(from, short, n.options.Clock())
	all := make([]quorum.ShardTime, len(times))
	for i, t := range times {
		all[i] = quorum.ShardTime(t)
	}
	n.engine.Load().Heard(from, all)
}

// Engine returns the engine, which the Node closes.
func (n *Node) Engine() *quorum.Engine { return n.engine.Load() }

// Files returns the engine of this node's copies of the shards, which the Node closes.
func (n *Node) Files() *seg.Engine { return n.local }

// Self returns this node.
func (n *Node) Self() peer.Node { return n.self() }

// Members returns all nodes of the cluster, sorted by address.
func (n *Node) Members() []peer.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.id.Nodes)
}

func (n *Node) others() []peer.Node {
	return slices.DeleteFunc(n.Members(), func(m peer.Node) bool { return m.Address == n.options.Advertise })
}

// Dial opens a stream to a node, as [peer.Links.Dial] does.
func (n *Node) Dial(ctx context.Context, to wlog.NodeID, kind peer.Kind) (net.Conn, error) {
	return n.links.Dial(ctx, to, kind)
}

// Serve passes streams of other nodes to fn, as [peer.Links.Serve] does. Until then they are refused.
func (n *Node) Serve(kind peer.Kind, fn func(conn net.Conn, from wlog.NodeID)) {
	n.links.Serve(kind, fn)
}

// Status is the state of the node.
type Status struct {
	Cluster string // the cluster's id
	Name    string
	Self    peer.Node
	Links   []peer.Status
	Skew    peer.Skew
}

// Status returns the state of the node and its links.
func (n *Node) Status() Status {
	n.mu.Lock()
	st := Status{Cluster: n.id.Cluster, Name: n.id.Name}
	n.mu.Unlock()
	st.Self, st.Links, st.Skew = n.self(), n.links.Status(), n.links.Skew()
	return st
}

// leaveTime is how long a node that shuts down tries to transfer its shards.
const leaveTime = 5 * time.Second

// Leave transfers the shards that this node owns to other nodes, and keeps it from owning shards again. It gives up when ctx ends, after 5
// s, or when all other nodes have declined because they shut down, too. Without a connected node it does nothing. Only the first call has
// an effect.
func (n *Node) Leave(ctx context.Context) {
	if n.leaving.Swap(true) {
		return
	}
	connected := func(l peer.Status) bool { return l.Connected }
	if !slices.ContainsFunc(n.links.Status(), connected) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	if err := n.Engine().Leave(ctx); err != nil {
		n.options.Log.Warn("this node could not hand over all its shards: the other nodes elect new owners when it has ended", "error", err)
	}
}

// Close ends the node's part in the cluster. It calls Leave, if that was not called before.
func (n *Node) Close(ctx context.Context) error {
	n.Leave(ctx)
	n.end()
	n.duties.Wait()
	return errors.Join(n.engine.Load().Close(), n.links.Close())
}
