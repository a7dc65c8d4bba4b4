package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/seg"
)

// DefaultVHost is the vhost that a new data directory has.
const DefaultVHost = "/"

// Open opens a data directory and recovers what its logs hold. It returns an error if ctx ends before.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{
		log: o.Log, placementShards: uint64(o.Shards), minCompactBytes: cmp.Or(o.Extent, minCompactBytes),
		alarms:      newAlarms(o.Log, o.Telemetry),
		vhostConfig: vhost.Config{Chain: o.Chain, Clock: o.Clock, Log: o.Log, Telemetry: o.Telemetry, MaxBindings: o.Bindings},
		disk:        disk{dir: o.Dir, changed: make(chan struct{}, 1), ended: make(chan struct{})},
		vhosts:      vhosts{all: map[string]vhostEntry{}},
	}
	s.disk.limit.Store(max(o.DiskLimit, 0))
	s.userLog = newDefinitionLog(s, scope{kind: scopeUsers})
	s.users = auth.New(auth.Options{Hashing: o.Hashing, Definitions: s.userLog, VHost: s.vhosts.has})
	s.globals = globals{log: newDefinitionLog(s, scope{kind: scopeGlobals}), all: map[string]json.RawMessage{}}
	r := newRecovery(s, o)
	var err error
	s.engine, err = seg.New(o.Dir, seg.Options{
		Durability: o.Durability, Firm: []uint32{definitionsShard}, Short: []uint32{definitionsShard},
		SegmentSize: o.SegmentSize, Clock: o.Clock, Events: r.events(),
	})
	if err != nil {
		return nil, err
	}
	if err := r.run(ctx); err != nil {
		return nil, errors.Join(err, s.abandon(ctx))
	}
	s.watchDisk()
	return s, nil
}

// abandon closes what was opened, after Open failed.
func (s *Store) abandon(ctx context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel() // no commit is worth waiting for
	for _, d := range s.shards {
		if d.Writer != nil {
			_ = d.Close(ctx)
		}
	}
	if s.definitions != nil {
		_ = s.definitions.Close(ctx)
	}
	return s.engine.Close()
}
