package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
)

// DefaultVHost is the vhost of a new data directory.
const DefaultVHost = "/"

// Open opens a data directory and recovers the contents of its logs. It returns an error if
// ctx ends before it is done. In a cluster it returns at once, and recovers a shard when
// this node becomes its owner.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Queues == nil {
		o.Queues = new(queue.Broker)
	}
	s := &Store{
		log: o.Log, minCompactBytes: cmp.Or(o.Extent, minCompactBytes),
		alarms:      newAlarms(o.Log, o.Telemetry),
		vhostConfig: vhost.Config{Queues: o.Queues, Chain: o.Chain, Clock: o.Clock, Log: o.Log, Telemetry: o.Telemetry, MaxBindings: o.Bindings},
		disk:        disk{dir: o.Dir, changed: make(chan struct{}, 1), ended: make(chan struct{})},
		vhosts:      vhosts{all: map[string]vhostEntry{}},
	}
	s.disk.limit.Store(max(o.DiskLimit, 0))
	if o.Rules == nil {
		o.Rules = policies.NewRules(slices.Concat(o.Chain.Arguments(), o.Chain.ExchangeKeys()), o.Chain.Strategies)
	}
	start := s.startCluster
	if o.Cluster == nil {
		start = s.startAlone
	}
	if err := start(ctx, o); err != nil {
		return nil, err
	}
	return s, nil
}
