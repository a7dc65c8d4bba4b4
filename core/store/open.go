package store

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/policies"
)

// DefaultVHost is the vhost that a new data directory has.
const DefaultVHost = "/"

// Open opens a data directory and recovers what its logs hold. It returns an error if ctx ends before.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Queues == nil {
		o.Queues = new(queue.Broker)
	}
	s := &Store{
		log: o.Log, placementShards: uint64(o.Shards), minCompactBytes: cmp.Or(o.Extent, minCompactBytes),
		alarms:      newAlarms(o.Log, o.Telemetry),
		vhostConfig: vhost.Config{Queues: o.Queues, Chain: o.Chain, Clock: o.Clock, Log: o.Log, Telemetry: o.Telemetry, MaxBindings: o.Bindings},
		disk:        disk{dir: o.Dir, changed: make(chan struct{}, 1), ended: make(chan struct{})},
		vhosts:      vhosts{all: map[string]vhostEntry{}},
	}
	s.disk.limit.Store(max(o.DiskLimit, 0))
	if o.Rules == nil {
		o.Rules = policies.NewRules(slices.Concat(o.Chain.Arguments(), o.Chain.ExchangeKeys()), o.Chain.Strategies)
	}
	if o.Cluster != nil {
		return s, s.startCluster(ctx, o)
	}
	if os.Getenv("STORE_LOCAL") != "" && o.Engine == nil {
		return s, s.startAlone(ctx, o)
	}
	s.definitions = newShard(s, definitionsShard)
	s.definitions.holdsDefinitions = true
	s.userLog = newDefinitionLog(s.definitions, scope{kind: scopeUsers})
	s.users = auth.New(auth.Options{Hashing: o.Hashing, Definitions: s.userLog, VHost: s.vhosts.has})
	s.globalLog = newDefinitionLog(s.definitions, scope{kind: scopeGlobals})
	s.globals = &globals{log: s.globalLog, all: globalValues{}}
	r := newRecovery(s, o)
	if err := s.openEngine(o, r.events()); err != nil {
		return nil, err
	}
	if err := r.run(ctx); err != nil {
		return nil, errors.Join(err, s.abandon(ctx))
	}
	s.watchDisk()
	return s, nil
}

// openEngine sets the engine.
func (s *Store) openEngine(o Options, events seg.Events) (err error) {
	if s.engine = o.Engine; s.engine != nil {
		return nil
	}
	s.files, err = seg.New(o.Dir, seg.Options{
		Durability: o.Durability, Firm: []uint32{definitionsShard}, Short: []uint32{definitionsShard},
		SegmentSize: o.SegmentSize, Clock: o.Clock, Events: events,
	})
	s.engine = s.files
	return err
}

// abandon closes what was opened, after Open failed.
func (s *Store) abandon(ctx context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel() // no commit is worth waiting for
	for _, d := range append(slices.Clone(s.shards), s.definitions) {
		if d.Writer != nil {
			_ = d.Close(ctx)
		}
	}
	return s.engine.Close()
}
