package app

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
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

// node is the AMQP server and its data directory.
type node struct {
	*wire.Server
	store *store.Store
	wasm  *policyHost
	rules *policies.Rules
	clock clock.Clock
	chain *chain.Chain
	dir   string // of the data

	sources *sourceKeeper

	member *member // nil = the broker is in no cluster
}

var _ broker = (*node)(nil)

// newBroker opens the data directory, which may take a while, and creates the AMQP server. It does not listen yet.
func newBroker(ctx context.Context, s setup) (broker, error) {
	rules := policies.NewRules(slices.Concat(s.chain.Arguments(), s.chain.ExchangeKeys()), s.chain.Strategies)
	dir, err := makeDataDir(s.Data.Dir)
	if err == nil {
		err = cluster.CheckFolder(s.Data.Dir, s.Cluster.On())
	}
	if err != nil {
		return nil, err
	}
	host, err := openPolicies(s) //nolint:contextcheck // fuel bounds how long guests run
	if err != nil {
		return nil, err
	}
	if s.Cluster.On() {
		return newMember(ctx, s, rules, host)
	}
	st, err := openStore(ctx, s, storeOptions(s, dir, rules), &host.store)
	if err != nil {
		return nil, errors.Join(dataDirError(s.Data.Dir, err), host.close()) //nolint:contextcheck // see above
	}
	host.store.Store(st)
	if err := configureUsers(s, st); err != nil {
		return nil, errors.Join(err, st.Close(ctx), host.close()) //nolint:contextcheck // see above
	}
	n, err := serveStore(s, st, rules, host, nil)
	if err != nil {
		return nil, errors.Join(err, st.Close(ctx), host.close()) //nolint:contextcheck // see above
	}
	return n, nil
}

// newMember is newBroker for a node of a cluster.
func newMember(ctx context.Context, s setup, rules *policies.Rules, host *policyHost) (broker, error) {
	m, err := join(ctx, s)
	if err != nil {
		return nil, errors.Join(err, host.close()) //nolint:contextcheck // fuel bounds how long guests run
	}
	o := storeOptions(s, vfs.Dir(cluster.Folder(s.Data.Dir)), rules)
	m.storeOptions(s, &o)
	o.Modules = host.followModules
	st, err := openStore(ctx, s, o, &host.store)
	if err != nil {
		return nil, errors.Join(err, m.end(ctx), host.close()) //nolint:contextcheck // see above
	}
	host.store.Store(st)
	m.space.Store(st)
	n, err := serveStore(s, st, rules, host, m)
	if err != nil {
		return nil, errors.Join(err, st.Close(ctx), m.end(ctx), host.close()) //nolint:contextcheck // see above
	}
	m.serve(n.Server)
	m.keep(ctx, st, s.clock)
	m.awaitCluster(ctx, st.Registry())
	return n, nil
}

// serveStore creates the server for what is in a store. member is nil without a cluster.
func serveStore(s setup, st *store.Store, rules *policies.Rules, host *policyHost, m *member) (*node, error) {
	s.chain.OnStrategyChange(func(strategy string, recompute bool) {
		for _, v := range st.VHosts() {
			v.StrategyChanged(strategy, recompute)
		}
	})
	o := wireOptions(s, st)
	if m != nil {
		m.wireOptions(s, st, &o)
	}
	server, err := wire.New(o)
	if err != nil {
		return nil, err
	}
	sources := keepSources(s.Data.Dir, st.Users(), st.Full, s.log)
	return &node{server, st, host, rules, s.clock, s.chain, s.Data.Dir, sources, m}, nil
}

// openStore opens the data directory. The caller stores what it returns in opened.
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
			s.log.Error("a queue is stopped until the broker is started again, when what is not persistent of it is lost", "error", err)
		}
		if err := o.Queues.SpillTo(s.Data.Dir, int64(min(s.bodies, 1<<62)), spare, failed); err != nil {
			return nil, err
		}
	}
	return store.Open(ctx, o)
}

// storeOptions returns the options for a store in dir.
func storeOptions(s setup, dir vfs.FS, rules *policies.Rules) store.Options {
	return store.Options{
		Dir: dir, Durability: durability(s.Durability), Shards: s.Data.Shards, Queues: new(queue.Broker), Chain: s.chain, Rules: rules, Clock: s.clock, Log: s.log,
		Hashing: hashing(s.Auth.PasswordHashing), Telemetry: s.telemetry, Bindings: s.Limits.Bindings, DiskLimit: s.diskLimit,
		Progress: s.progress,
	}
}

var _ limited = (*node)(nil)

// DiskLimit implements [limited], as SetDiskLimit.
func (n *node) DiskLimit() int64 { return n.store.DiskLimit() }

// SetDiskLimit implements [limited].
func (n *node) SetDiskLimit(bytes int64) { n.store.SetDiskLimit(bytes) }

// Alarms names what is wrong: what blocks publishers, logs that have failed, and the node's part in its cluster.
func (n *node) Alarms() []string {
	all := append(n.Server.Alarms(), n.store.Alarms()...)
	if n.member != nil {
		all = append(all, n.member.alarms(n.store.Registry(), all)...)
	}
	return all
}

// Management implements [broker].
func (n *node) Management() mgmt.Options {
	o := mgmt.Options{
		Store: n.store, AMQP: n.Server, Rules: n.rules, Clock: n.clock, Alarms: n.Alarms, Modules: n.wasm.modules(), Lab: lab{n.chain, n.wasm.Host},
		PolicyFiles: policyFolder(n.dir),
	}
	if n.member != nil {
		v := &clusterView{member: n.member, store: n.store, amqp: n.Server}
		o.Peers, o.Placements, o.Replicas = v, v, v
	}
	return o
}

// Opened is told that the management API answers.
func (n *node) Opened(a *mgmt.API) {
	if n.member != nil {
		n.member.open(a)
	}
}

// ReloadTLS implements [broker].
func (n *node) ReloadTLS() error {
	if err := n.Server.ReloadTLS(); err != nil || n.member == nil || n.member.tls == nil {
		return err
	}
	return n.member.tls.Reload()
}

const (
	// flushTime bounds closing the data directory, which comes after the connections even if those took all their time.
	flushTime = 5 * time.Second
	// handOverTime bounds making everything durable before other nodes take over what this one owns.
	handOverTime = time.Second
	// unwindTime is how long connections that were cut off may take to end. After it they are assumed to wait for a full disk.
	unwindTime = time.Second
)

// Shutdown implements [broker].
func (n *node) Shutdown(ctx context.Context) error {
	if n.member != nil {
		flush, cancel := context.WithTimeout(ctx, handOverTime)
		n.store.Flush(flush)
		cancel()
		n.member.Leave(ctx)
	}
	ended := make(chan error, 1)
	go func() { ended <- n.Server.Shutdown(ctx) }()
	select {
	case err := <-ended:
		ended <- err
	case <-after(ctx, unwindTime):
	}
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	err := n.store.Close(flush) // connections that wait for it get an error
	if n.member != nil {
		err = errors.Join(err, n.member.end(flush))
	}
	err = errors.Join(<-ended, err)
	n.sources.end()
	return errors.Join(err, n.wasm.close()) //nolint:contextcheck // nothing in it waits
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
			Product: c.Compat.Product, Version: c.Compat.Version, Own: version, ClusterName: nodeName(c), Node: nodeName(c),
			Queues: st.Queues(),
			Users:  st.Users(),
			VHosts: st.VHost,

			ChannelMax: uint16(c.Limits.Channels), FrameMax: int(c.Limits.FrameMax), MessageMax: int(c.Limits.MessageSize),
			Heartbeat: uint16(c.Limits.Heartbeat / time.Second), Connections: c.Limits.Connections,
			Consumers:       c.Limits.Consumers,
			ConsumerTimeout: c.Limits.ConsumerTimeout, GuestLoopbackOnly: c.Auth.GuestLoopbackOnly,
			CertificateLogin: certificateLogin(&c.Auth),
			Log:              s.log, Telemetry: s.telemetry,
		},
		Proxies:          c.Listen.ProxyProtocol,
		Descriptors:      clientDescriptors(filesLimit()),
		Clock:            s.clock,
		HandshakeTimeout: c.Limits.HandshakeTimeout,
		Handshakes:       c.Limits.Handshakes,
		MemoryLimit:      int64(min(s.watermark, 1<<62)),
		LiveHeap:         liveHeap,
		DiskFull:         st.Full,
	}
}

// amqpTLS returns how the broker listens for AMQP with TLS.
func amqpTLS(c *config.Config) wire.TLS {
	return wire.TLS{
		Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.CA,
		VerifyPeer: c.TLS.VerifyPeer, MinVersion: tlsVersion(c.TLS.MinVersion),
	}
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

// certificateFields are the choices of auth.certificate-login but off.
var certificateFields = map[config.CertificateLogin]auth.CertificateField{
	"distinguished-name": auth.DistinguishedName, "common-name": auth.CommonName, "san-dns": auth.SANDNS, "san-email": auth.SANEmail,
	"san-uri": auth.SANURI, "san-ip": auth.SANIP, "san-other": auth.SANOther,
}

func certificateLogin(c *config.Auth) auth.CertificateLogin {
	return auth.CertificateLogin{Field: certificateFields[c.CertificateLogin], Index: c.CertificateSANIndex}
}

func tlsVersion(s string) uint16 {
	if s == "1.3" {
		return tls.VersionTLS13
	}
	return tls.VersionTLS12
}

// hostName returns the name of the machine.
func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return host
}
