// Package cluster is a node of a cluster: who it is, how the first nodes find together, and the engine on a majority of them with the
// links that it needs.
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

// Size is how many nodes a cluster has.
const Size = 3

// Registry is the shard that says where everything else is.
const Registry = 0

// Options of a [Node]. Errors about them name the configuration key.
type Options struct {
	Dir       vfs.FS        // the folder of the node, see [Folder]
	Nodes     []string      // cluster.nodes: the addresses of all
	Advertise string        // cluster.advertise: which of them is this node
	Name      string        // cluster.name
	Election  time.Duration // cluster.election
	Stall     time.Duration // cluster.disk-stall; 0 = 5 s
	Shards    uint32        // cluster.shards: logs of vhosts; the registry is one more
	Listener  net.Listener  // where other nodes come in; the Node closes it
	TLS       *peer.TLS     // nil = without
	Version   string        // of the broker
	Format    uint32        // the latest format of logs that this version reads; 0 = [Format]
	Clock     clock.Clock
	Log       *slog.Logger
	Disk      seg.Options // of the local logs; Clock, Durability and Short need not be set

	// Skewed hears that this node's clock went wrong or right, see [peer.Options]; nil = nobody wants to know.
	Skewed func(peer.Skew)
	// Crowded hears that another node's disk lacks space for its copy of a shard, again and again, and once that it has enough; nil = nobody
	// wants to know. Calls come one after the other, and must not block.
	Crowded func(shard uint32, low bool)
	// Replaced hears of nodes in whose places others were admitted; nil = nobody wants to know. It must not block.
	Replaced func(former wlog.NodeID)
	// Silent hears of nodes of which nothing has come for ten seconds, see [peer.Options]; nil = nobody wants to know. It must not block.
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
	skew      chan peer.SkewLevel           // the latest one that nobody has acted on
	shortages shortages
	leaving   atomic.Bool // Leave was called
	duties    sync.WaitGroup
	ctx       context.Context // ends with Close
	end       context.CancelFunc

	mu         sync.Mutex // guards the rest
	id         identity
	joins      string                 // the cluster that the node wants to begin; "" = it does not know all nodes, or is of one
	applicants map[string]wlog.NodeID // by address, nodes that wanted to take the place of others
}

// Open makes the node part of its cluster. At the very first start it waits for all other nodes until ctx ends, later for none.
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

// prepare opens the folder, and finds out who the node is.
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
		return fmt.Errorf("cluster.nodes %s has %d: a cluster has three nodes", list, len(o.Nodes))
	case !slices.Contains(o.Nodes, o.Advertise):
		return fmt.Errorf("cluster.advertise %s is none of cluster.nodes %s", o.Advertise, list)
	case o.Shards < 1 || o.Shards > 255:
		return fmt.Errorf("cluster.shards %d: 1 to 255 are allowed", o.Shards)
	}
	return nil
}

// identify reads who the node is, or makes a new one of it.
func (n *Node) identify() error {
	id, ok, err := loadIdentity(n.options.Dir)
	if err != nil {
		return err
	}
	if ok && id.Address == "" && id.Seed == id.Number { // the folder was made before it was known where the node will be
		id.Address = n.options.Advertise // which is written down when the cluster begins: a start that is refused changes nothing
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
			return fmt.Errorf("%w: there are logs, but no %s, which says whose they are", wlog.ErrDamaged, identityFile)
		}
	}
	n.id = identity{Format: identityFormat, Number: newNumber(), Address: n.options.Advertise}
	return n.id.save(n.options.Dir)
}

// checkIdentity returns an error if the configuration is not that of the node in the folder.
func (o *Options) checkIdentity(id *identity) error {
	if id.writes() > o.Format {
		return fmt.Errorf("%w: the cluster of this data folder writes logs of format %d, and version %s reads up to %d", wlog.ErrNewer, id.writes(), o.Version, o.Format)
	}
	if id.Address != o.Advertise {
		return fmt.Errorf("cluster.advertise is %s, but the data folder is that of the node at %s", o.Advertise, id.Address)
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
		return fmt.Errorf("cluster.nodes are %s, but the data folder is of a cluster of %s", strings.Join(own, ","), strings.Join(known, ","))
	case id.Name != o.Name:
		return fmt.Errorf("cluster.name is %q, but the data folder is of the cluster %q", o.Name, id.Name)
	case id.Shards != o.Shards:
		return fmt.Errorf("cluster.shards is %d, but the data folder is of a cluster with %d, which is fixed at the first start", o.Shards, id.Shards)
	}
	return nil
}

// start starts the engine and the links. It closes the local logs if it fails.
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

// shardLost logs why this node does not own a shard any more.
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

// checkLogs returns an error if a log is missing that was there before: the node would forget whom it voted for.
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

// received hands a message to the engine. There are none before it runs: nobody has a link yet.
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

// heard takes those of another node, and for which shards it lacks disk space.
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

// others returns the other nodes.
func (n *Node) others() []peer.Node {
	return slices.DeleteFunc(n.Members(), func(m peer.Node) bool { return m.Address == n.options.Advertise })
}

// Dial opens a stream to a node, as [peer.Links.Dial] does.
func (n *Node) Dial(ctx context.Context, to wlog.NodeID, kind peer.Kind) (net.Conn, error) {
	return n.links.Dial(ctx, to, kind)
}

// Serve has streams of other nodes handed to fn, as [peer.Links.Serve] does. Until then they are refused.
func (n *Node) Serve(kind peer.Kind, fn func(conn net.Conn, from wlog.NodeID)) {
	n.links.Serve(kind, fn)
}

// Status is the state of the node.
type Status struct {
	Cluster string // its id
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

// leaveTime bounds giving the node's shards to others before it ends.
const leaveTime = 5 * time.Second

// Leave gives the shards that this node owns to others, and has it own none again, until ctx ends, 5 s have passed or all others have
// declined: they are about to end, too. Without another node there is nobody to give them to. Only the first call does anything.
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
		n.options.Log.Warn("other nodes have to find out that this one has ended", "error", err)
	}
}

// Close ends the node's part in the cluster, after Leave, which it need not try again.
func (n *Node) Close(ctx context.Context) error {
	n.Leave(ctx)
	n.end()
	n.duties.Wait()
	return errors.Join(n.engine.Load().Close(), n.links.Close())
}
