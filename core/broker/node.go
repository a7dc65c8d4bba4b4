package broker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/backup"
	"github.com/curfewmq/curfew/core/cluster"
	"github.com/curfewmq/curfew/core/config"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/policies"
)

// node is the AMQP server and its data directory. It implements [server].
type node struct {
	*wire.Server
	store *store.Store
	o     *Options
	rules *policies.Rules

	sources *sourceKeeper

	part part // in a cluster
}

// part is the node's part in a cluster. Its methods are those of [server] and of [node], as
// far as they concern other nodes.
type part interface {
	// alarms names problems that known does not have.
	alarms(r *store.Registry, known []string) []string
	// manage adds the cluster to the options of the management API, and open lets that answer other nodes.
	manage(n *node, o *mgmt.Options)
	open(api *mgmt.API)
	// listener returns the listener for other nodes; ok is false without one.
	listener() (l mgmt.Listener, ok bool)
	reloadTLS() error
	// leave makes everything durable, and hands the node's shards to other nodes.
	leave(ctx context.Context, st *store.Store)
	end(ctx context.Context) error
}

// noPart is the part of a broker that is alone.
type noPart struct{}

func (noPart) alarms(*store.Registry, []string) []string { return nil }
func (noPart) manage(*node, *mgmt.Options)               {}
func (noPart) open(*mgmt.API)                            {}
func (noPart) listener() (l mgmt.Listener, ok bool)      { return l, false }
func (noPart) reloadTLS() error                          { return nil }
func (noPart) leave(context.Context, *store.Store)       {}
func (noPart) end(context.Context) error                 { return nil }

var _ server = (*node)(nil)

// setup are the parameters of a node.
type setup struct {
	*config.Config
	o         *Options
	watermark uint64 // bytes of memory above which publishers are blocked; 0 = never
	diskLimit int64  // bytes of free disk space below which publishers are blocked; 0 = none
	bodies    uint64 // bytes of memory above which message bodies go to disk; 0 = never
}

// openNode opens the data directory, which may take a while, and creates the AMQP server.
// The server does not listen yet.
func openNode(ctx context.Context, s setup) (server, error) {
	rules := policies.NewRules(slices.Concat(s.o.Chain.Arguments(), s.o.Chain.ExchangeKeys()), s.o.Chain.Strategies)
	dir, err := makeDataDir(s.Data.Dir)
	if err == nil {
		err = cluster.CheckFolder(s.Data.Dir, s.Cluster.On())
	}
	if err != nil {
		return nil, err
	}
	opened := new(atomic.Pointer[store.Store])
	if err := openPolicies(s, opened); err != nil {
		return nil, err
	}
	if s.Cluster.On() {
		return openMember(ctx, s, rules, opened)
	}
	st, err := openStore(ctx, s, storeOptions(s, dir, rules), opened)
	if err != nil {
		return nil, errors.Join(dataDirError(s.Data.Dir, err), closePolicies(s.o))
	}
	if err := configureUsers(s, st); err != nil {
		return nil, errors.Join(err, st.Close(ctx), closePolicies(s.o))
	}
	n, err := serveStore(s, wireOptions(s, st), st, rules, noPart{})
	if err != nil {
		return nil, errors.Join(err, st.Close(ctx), closePolicies(s.o))
	}
	return n, nil
}

// openPolicies opens the host of policies, if there is one. It comes before the data
// directory is opened, so that queues find their strategies.
func openPolicies(s setup, opened *atomic.Pointer[store.Store]) error {
	if s.o.Policies == nil {
		return nil
	}
	return s.o.Policies.Open(PolicyEnv{
		Log: s.o.Log, Recorder: s.o.Recorder, Dir: PolicyFolder(s.Data.Dir), Clustered: s.Cluster.On(), Strategies: s.o.Chain.Strategies, Plugins: s.Plugins,
		Store: func() (st *store.Store, ok bool) {
			st = opened.Load()
			return st, st != nil
		},
	})
}

// closePolicies ends the host of policies after the queues.
func closePolicies(o *Options) error {
	if o.Policies == nil {
		return nil
	}
	return o.Policies.Close()
}

// PolicyFolder returns the folder of a data directory with the policies that were loaded at run time.
func PolicyFolder(dir string) string { return filepath.Join(dir, backup.PolicyFolder) }

// openMember is openNode for a node of a cluster.
func openMember(ctx context.Context, s setup, rules *policies.Rules, opened *atomic.Pointer[store.Store]) (server, error) {
	m, err := join(ctx, s)
	if err != nil {
		return nil, errors.Join(err, closePolicies(s.o))
	}
	o := storeOptions(s, vfs.Dir(cluster.Folder(s.Data.Dir)), rules)
	m.storeOptions(s, &o)
	if s.o.Policies != nil {
		o.Modules = s.o.Policies.Follow
	}
	st, err := openStore(ctx, s, o, opened)
	if err != nil {
		return nil, errors.Join(err, m.end(ctx), closePolicies(s.o))
	}
	m.space.Store(st)
	amqp := wireOptions(s, st)
	m.wireOptions(s, st, &amqp)
	n, err := serveStore(s, amqp, st, rules, m)
	if err != nil {
		return nil, errors.Join(err, st.Close(ctx), m.end(ctx), closePolicies(s.o))
	}
	m.serve(n.Server)
	m.keep(ctx, st, s.o.Clock)
	m.awaitCluster(ctx, st.Registry())
	return n, nil
}

// serveStore creates the server for a store.
func serveStore(s setup, o wire.Options, st *store.Store, rules *policies.Rules, p part) (*node, error) {
	s.o.Chain.OnStrategyChange(func(strategy string, recompute bool) {
		for _, v := range st.VHosts() {
			v.StrategyChanged(strategy, recompute)
		}
	})
	server, err := wire.New(o)
	if err != nil {
		return nil, err
	}
	sources := keepSources(s.Data.Dir, st.Users(), st.Full, s.o.Log)
	return &node{server, st, s.o, rules, sources, p}, nil
}

// openStore opens the data directory, and also stores the result in opened.
func openStore(ctx context.Context, s setup, o store.Options, opened *atomic.Pointer[store.Store]) (*store.Store, error) {
	if s.bodies > 0 {
		room, err := store.HasSpace(o.Dir)
		if err != nil {
			return nil, err
		}
		spare := func() bool {
			st := opened.Load()
			return (st == nil || st.Full() == nil) && room()
		}
		failed := func(err error) {
			s.o.Log.Error("a queue is stopped until the broker is restarted, and will then lose its messages that are not persistent", "error", err)
		}
		if err := o.Queues.SpillTo(s.Data.Dir, int64(min(s.bodies, 1<<62)), spare, failed); err != nil {
			return nil, err
		}
	}
	st, err := store.Open(ctx, o)
	if err == nil {
		opened.Store(st)
	}
	return st, err
}

func storeOptions(s setup, dir vfs.FS, rules *policies.Rules) store.Options {
	return store.Options{
		Dir: dir, Durability: durability(s.Durability), Shards: s.Data.Shards, Queues: new(queue.Broker), Chain: s.o.Chain, Rules: rules, Clock: s.o.Clock, Log: s.o.Log,
		Hashing: hashing(s.Auth.PasswordHashing), Telemetry: s.o.Recorder, Bindings: s.Limits.Bindings, DiskLimit: s.diskLimit,
		Progress: s.o.Recovering,
	}
}

func (n *node) DiskLimit() int64 { return n.store.DiskLimit() }

func (n *node) SetDiskLimit(bytes int64) { n.store.SetDiskLimit(bytes) }

// Alarms names the node's problems: blocked publishers, failed logs, and problems of its part in the cluster.
func (n *node) Alarms() []string {
	all := append(n.Server.Alarms(), n.store.Alarms()...)
	return append(all, n.part.alarms(n.store.Registry(), all)...)
}

func (n *node) Management() mgmt.Options {
	o := mgmt.Options{
		Store: n.store, AMQP: n.Server, Rules: n.rules, Clock: n.o.Clock, Alarms: n.Alarms, Lab: n.o.Lab,
		PolicyFiles: PolicyFolder(n.o.Config.Data.Dir),
	}
	if n.o.Policies != nil {
		o.Modules = n.o.Policies.Modules()
	}
	n.part.manage(n, &o)
	return o
}

func (n *node) Opened(a *mgmt.API) { n.part.open(a) }

func (n *node) NodeListener() (l mgmt.Listener, ok bool) { return n.part.listener() }

func (n *node) ReloadNodeTLS() error { return n.part.reloadTLS() }

const (
	// flushTime is how long the data directory may take to close after the connections,
	// even if the connections took all of their time.
	flushTime = 5 * time.Second
	// handOverTime is how long a node may take to make everything durable before other nodes take over its shards.
	handOverTime = time.Second
	// unwindTime is how long connections that were cut off may take to end. After that they
	// are assumed to wait for a full disk.
	unwindTime = time.Second
)

func (n *node) Shutdown(ctx context.Context) error {
	n.part.leave(ctx, n.store)
	ended := make(chan error, 1)
	go func() { ended <- n.Server.Shutdown(ctx) }()
	select {
	case err := <-ended:
		ended <- err
	case <-after(ctx, unwindTime):
	}
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	err := n.store.Close(flush) // connections that wait for the disk get an error
	err = errors.Join(err, n.part.end(flush))
	err = errors.Join(<-ended, err)
	n.sources.end()
	return errors.Join(err, closePolicies(n.o))
}

// after returns a channel that is closed d after ctx ends.
func after(ctx context.Context, d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(d, func() { close(c) }) })
	return c
}

func wireOptions(s setup, st *store.Store) wire.Options {
	c := s.Config
	return wire.Options{
		AMQP: c.Listen.AMQP, AMQPS: c.Listen.AMQPS,
		TLS: amqpTLS(c),
		Session: session.Options{
			Product: c.Compat.Product, Version: c.Compat.Version, Own: s.o.Program.Version, ClusterName: NodeName(c), Node: NodeName(c),
			Queues: st.Queues(),
			Users:  st.Users(),
			VHosts: st.VHost,

			ChannelMax: uint16(c.Limits.Channels), FrameMax: int(c.Limits.FrameMax), MessageMax: int(largestMessage(s, st)),
			Heartbeat: uint16(c.Limits.Heartbeat / time.Second), Connections: c.Limits.Connections,
			Consumers:       c.Limits.Consumers,
			ConsumerTimeout: c.Limits.ConsumerTimeout, GuestLoopbackOnly: c.Auth.GuestLoopbackOnly,
			CertificateLogin: certificateLogin(&c.Auth),
			Log:              s.o.Log, Telemetry: s.o.Recorder,
		},
		Proxies:          c.Listen.ProxyProtocol,
		Descriptors:      clientDescriptors(filesLimit()),
		Clock:            s.o.Clock,
		HandshakeTimeout: c.Limits.HandshakeTimeout,
		Handshakes:       c.Limits.Handshakes,
		MemoryLimit:      int64(min(s.watermark, 1<<62)),
		LiveHeap:         liveHeap,
		DiskFull:         st.Full,
		DiskFills:        st.Fills,
	}
}

// largestMessage returns how many bytes a message may have: less than configured on a disk on which that never fits.
func largestMessage(s setup, st *store.Store) int64 {
	configured, fits := int64(s.Config.Limits.MessageSize), st.LargestMessage()
	if fits < configured {
		s.o.Log.Warn("the disk is too small for messages of the configured size", "configured_bytes", configured, "largest_bytes", fits)
	}
	return min(configured, fits)
}

func durability(d config.Durability) seg.Durability {
	if d == config.Flush {
		return seg.Flush
	}
	return seg.Fsync
}

func hashing(h config.Hashing) auth.Algorithm {
	if h == config.SHA512 {
		return auth.SHA512
	}
	return auth.PBKDF2
}

// certificateFields are the choices of auth.certificate-login, without off.
var certificateFields = map[config.CertificateLogin]auth.CertificateField{
	"distinguished-name": auth.DistinguishedName, "common-name": auth.CommonName, "san-dns": auth.SANDNS, "san-email": auth.SANEmail,
	"san-uri": auth.SANURI, "san-ip": auth.SANIP, "san-other": auth.SANOther,
}

func certificateLogin(c *config.Auth) auth.CertificateLogin {
	return auth.CertificateLogin{Field: certificateFields[c.CertificateLogin], Index: c.CertificateSANIndex}
}

func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return host
}
