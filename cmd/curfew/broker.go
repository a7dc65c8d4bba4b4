package main

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

// node is the AMQP server and what it keeps on disk.
type node struct {
	*wire.Server
	store *store.Store
	wasm  *policyHost
	rules *policies.Rules
	clock clock.Clock
}

var _ broker = (*node)(nil)

// newBroker opens the data directory of a configuration, which may take a while, and makes the AMQP server of it. It does not
// listen yet.
func newBroker(ctx context.Context, s setup) (broker, error) {
	rules := policies.NewRules(s.chain.Strategies)
	dir, err := vfs.Make(s.Data.Dir)
	if err != nil {
		return nil, fmt.Errorf("data.dir %s: %w", s.Data.Dir, err)
	}
	host, err := openPolicies(s) //nolint:contextcheck // guests run to their end, which their fuel sees to
	if err != nil {
		return nil, err
	}
	kept, err := openStore(ctx, s, dir, rules, &host.store)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("data.dir %s: %w", s.Data.Dir, err), host.close()) //nolint:contextcheck // see above
	}
	host.store.Store(kept)
	s.chain.OnStrategyChange(func(strategy string, recompute bool) {
		for _, v := range kept.VHosts() {
			v.StrategyChanged(strategy, recompute)
		}
	})
	server, err := wire.New(wireOptions(s, kept))
	if err != nil {
		return nil, errors.Join(err, kept.Close(ctx), host.close()) //nolint:contextcheck // see above
	}
	return &node{server, kept, host, rules, s.clock}, nil
}

// openStore opens the data directory. kept is going to be what it returns.
func openStore(ctx context.Context, s setup, dir vfs.FS, rules *policies.Rules, kept *atomic.Pointer[store.Store]) (*store.Store, error) {
	if s.bodies > 0 {
		room, err := store.HasSpace(dir)
		if err != nil {
			return nil, err
		}
		spare := func() bool {
			k := kept.Load()
			return (k == nil || k.Full() == nil) && room()
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

// Alarms names what keeps the broker from taking messages.
func (n *node) Alarms() []string { return append(n.Server.Alarms(), n.store.Alarms()...) }

// Management implements [broker].
func (n *node) Management() mgmt.Options {
	return mgmt.Options{Store: n.store, AMQP: n.Server, Rules: n.rules, Clock: n.clock, Alarms: n.Alarms, Modules: n.wasm.modules()}
}

const (
	// flushTime is how long the data directory gets to be closed after the connections, even if those took all their time.
	flushTime = 5 * time.Second
	// unwindTime is how long connections that were cut off may still do what they are at, before it is taken that they wait
	// for a disk that is full.
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
	err := n.store.Close(flush)                      // whoever waits for it is told that it failed
	return errors.Join(<-ended, err, n.wasm.close()) //nolint:contextcheck // nothing in it waits
}

// after returns what is closed some time after ctx is done.
func after(ctx context.Context, d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(d, func() { close(c) }) })
	return c
}

func wireOptions(s setup, kept *store.Store) wire.Options {
	c := s.Config
	return wire.Options{
		AMQP: c.Listen.AMQP, AMQPS: c.Listen.AMQPS,
		TLS: wire.TLS{
			Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.CA,
			VerifyPeer: c.TLS.VerifyPeer, MinVersion: tlsVersion(c.TLS.MinVersion),
		},
		Session: session.Options{
			Product: c.Compat.Product, Version: c.Compat.Version, ClusterName: clusterName(), Node: clusterName(),
			Users:  kept.Users(),
			VHosts: kept.VHost,

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
		DiskFull:         kept.Full,
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

// clusterName is how the broker calls itself where there are several: as RabbitMQ does, after its machine.
func clusterName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return "curfew@" + host
}
