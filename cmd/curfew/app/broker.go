package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/clock"
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
}

var _ broker = (*node)(nil)

// newBroker opens the data directory, which may take a while, and creates the AMQP server. It does not listen yet.
func newBroker(ctx context.Context, s setup) (broker, error) {
	rules := policies.NewRules(s.chain.Arguments(), s.chain.Strategies)
	dir, err := vfs.Make(s.Data.Dir)
	if err != nil {
		return nil, fmt.Errorf("data.dir %s: %w", s.Data.Dir, err)
	}
	host, err := openPolicies(s) //nolint:contextcheck // fuel bounds how long guests run
	if err != nil {
		return nil, err
	}
	st, err := openStore(ctx, s, dir, rules, &host.store)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("data.dir %s: %w", s.Data.Dir, err), host.close()) //nolint:contextcheck // see above
	}
	host.store.Store(st)
	s.chain.OnStrategyChange(func(strategy string, recompute bool) {
		for _, v := range st.VHosts() {
			v.StrategyChanged(strategy, recompute)
		}
	})
	server, err := wire.New(wireOptions(s, st))
	if err != nil {
		return nil, errors.Join(err, st.Close(ctx), host.close()) //nolint:contextcheck // see above
	}
	return &node{server, st, host, rules, s.clock}, nil
}

// openStore opens the data directory. The caller stores what it returns in opened.
func openStore(ctx context.Context, s setup, dir vfs.FS, rules *policies.Rules, opened *atomic.Pointer[store.Store]) (*store.Store, error) {
	if s.bodies > 0 {
		room, err := store.HasSpace(dir)
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
		if err := queue.SpillTo(s.Data.Dir, int64(min(s.bodies, 1<<62)), spare, failed); err != nil {
			return nil, err
		}
	}
	return store.Open(ctx, store.Options{
		Dir: dir, Durability: durability(s.Durability), Shards: s.Data.Shards, Chain: s.chain, Rules: rules, Clock: s.clock, Log: s.log,
		Hashing: hashing(s.Auth.PasswordHashing), Telemetry: s.telemetry, Bindings: s.Limits.Bindings, DiskLimit: s.diskLimit,
	})
}

var _ limited = (*node)(nil)

// DiskLimit implements [limited], as SetDiskLimit.
func (n *node) DiskLimit() int64 { return n.store.DiskLimit() }

// SetDiskLimit implements [limited].
func (n *node) SetDiskLimit(bytes int64) { n.store.SetDiskLimit(bytes) }

// Alarms names the alarms that block publishers.
func (n *node) Alarms() []string { return append(n.Server.Alarms(), n.store.Alarms()...) }

// Management implements [broker].
func (n *node) Management() mgmt.Options {
	return mgmt.Options{Store: n.store, AMQP: n.Server, Rules: n.rules, Clock: n.clock, Alarms: n.Alarms, Modules: n.wasm.modules()}
}

const (
	// flushTime bounds closing the data directory, which comes after the connections even if those took all their time.
	flushTime = 5 * time.Second
	// unwindTime is how long connections that were cut off may take to end. After it they are assumed to wait for a full disk.
	unwindTime = time.Second
)

// Shutdown implements [broker].
func (n *node) Shutdown(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- n.Server.Shutdown(ctx) }()
	select {
	case err := <-ended:
		ended <- err
	case <-after(ctx, unwindTime):
	}
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	err := n.store.Close(flush)                      // connections that wait for it get an error
	return errors.Join(<-ended, err, n.wasm.close()) //nolint:contextcheck // nothing in it waits
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
		TLS: wire.TLS{
			Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.CA,
			VerifyPeer: c.TLS.VerifyPeer, MinVersion: tlsVersion(c.TLS.MinVersion),
		},
		Session: session.Options{
			Product: c.Compat.Product, Version: c.Compat.Version, ClusterName: clusterName(), Node: clusterName(),
			Users:  st.Users(),
			VHosts: st.VHost,

			ChannelMax: uint16(c.Limits.Channels), FrameMax: int(c.Limits.FrameMax), MessageMax: int(c.Limits.MessageSize),
			Heartbeat: uint16(c.Limits.Heartbeat / time.Second), Connections: c.Limits.Connections,
			Consumers:       c.Limits.Consumers,
			ConsumerTimeout: c.Limits.ConsumerTimeout, GuestLoopbackOnly: c.Auth.GuestLoopbackOnly,
			Log: s.log, Telemetry: s.telemetry,
		},
		Clock:            s.clock,
		HandshakeTimeout: c.Limits.HandshakeTimeout,
		Handshakes:       c.Limits.Handshakes,
		MemoryLimit:      int64(min(s.watermark, 1<<62)),
		DiskFull:         st.Full,
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

func tlsVersion(s string) uint16 {
	if s == "1.3" {
		return tls.VersionTLS13
	}
	return tls.VersionTLS12
}

// clusterName returns the name of the broker and its cluster: as RabbitMQ has it, after the machine.
func clusterName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return "curfew@" + host
}
