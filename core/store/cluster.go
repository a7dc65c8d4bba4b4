package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// cluster is the part of a store that makes it a node of a cluster, which may have only
// this node: the registry, which is in shard 0, and a seat for each shard of vhosts.
type cluster struct {
	store    *Store
	engine   wlog.Cluster
	options  Options
	registry placements // shared, except in some tests
	shared   *Registry  // nil only in tests
	seats    []*seat    // by number, less 1
	running  sync.WaitGroup
	stop     func() // ends running. Shards that are held stay, and so do the duties of their owner
}

// placements is the part of the registry that owners of shards use.
type placements interface {
	// Placement returns where a vhost lives.
	Placement(vhost string) (Placement, bool)
	// Placements lists the vhosts of a shard, and the highest number that a placement ever had.
	Placements(shard uint32) (all []Placement, given uint64)
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
	// Place and Unplace change the registry. They fail with wlog.ErrNotOwner where it is owned elsewhere.
	Place(vhost string, m vhost.Metadata) (p Placement, created bool, err error)
	Unplace(vhost string) (existed bool, err error)
}

// Home says where a vhost is served.
type Home struct {
	Owner   wlog.NodeID     // the node that owns the vhost's shard, as far as this one knows; 0 = none does
	Here    bool            // [Store.VHost] returns the vhost
	Changed <-chan struct{} // closed when it may be served elsewhere
}

// Home returns where a vhost is served. ok is false if there is no such vhost, as far as
// this node knows. Home does not wait. If this node owns the shard but does not serve the
// vhost yet, Here is false, and Changed is closed when it does.
func (s *Store) Home(vhost string) (h Home, ok bool) {
	c := s.cluster
	p, ok := c.registry.Placement(vhost)
	if !ok || int(p.Shard) > len(c.seats) {
		return Home{}, false
	}
	seen := c.seats[p.Shard-1].seen.Load() // read before the table: a change of the table closes Changed afterwards
	v, here := c.store.vhosts.lookup(vhost)
	return Home{Owner: seen.owner, Here: here && v.Placement() == p.Number, Changed: seen.changed}, true
}

// startCluster begins to follow the registry, and to serve the shards that this node owns.
func (s *Store) startCluster(ctx context.Context, o Options) error {
	if o.Shards < 1 || o.Shards > MaxShards {
		return fmt.Errorf("%d shards: a cluster has 1 to %d", o.Shards, MaxShards)
	}
	c := s.newCluster(ctx, o, uint32(o.Shards))
	for _, t := range c.seats {
		t.standby = &standby{cluster: c, seat: t, pace: o.standby.withDefaults()}
	}
	c.start(ctx)
	if o.Dir != nil {
		s.watchDisk()
	}
	return nil
}

// newCluster begins to follow the registry.
func (s *Store) newCluster(ctx context.Context, o Options, seats uint32) *cluster {
	c := &cluster{store: s, engine: o.Cluster, options: o, registry: o.placements}
	s.files, s.cluster = o.Files, c
	for number := range seats {
		c.seats = append(c.seats, newSeat(number+1))
	}
	if c.registry == nil {
		c.shared = c.openRegistry(ctx)
		c.registry = c.shared
		s.users, s.globals = c.shared.users, c.shared.globals
	}
	return c
}

func (c *cluster) openRegistry(ctx context.Context) *Registry {
	o, alarms := c.options, &c.store.alarms
	var r *Registry
	made := make(chan struct{})
	options := registryOptions{
		Cluster: o.Cluster, Shards: o.Shards, Log: o.Log, Hashing: o.Hashing, Extent: o.Extent, Name: o.ClusterName, Members: o.Members,
		Modules: o.Modules, GiveUp: o.GiveUp,
		Full: func(full bool) { alarms.setBlocked(registryShard, full) },
		Damaged: func(err error) {
			if err == nil {
				alarms.clear(registryShard)
				return
			}
			alarms.fail(registryShard)
		},
		Failure: c.failure,
	}
	if a := c.store.alone; a != nil {
		options.Sole, options.Replayed = true, a.progress.count
	}
	if o.Owned != nil {
		options.Owned = func(ctx context.Context) error {
			<-made
			return o.Owned(ctx, r)
		}
	}
	r = newRegistry(ctx, options)
	close(made)
	return r
}

// start starts the runners of all shards of vhosts.
func (c *cluster) start(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unwatch := c.engine.Owners(c.owns)
	c.stop = func() {
		unwatch()
		cancel()
		c.running.Wait()
	}
	for _, t := range c.seats {
		c.running.Go(func() { t.run(ctx, c) })
	}
}

// readyTime bounds how long vhosts wait for the registry and its modules. Then they are
// served all the same, if need be without modules.
const readyTime = 10 * time.Second

// awaitRegistry waits until this node's copy of the registry is whole.
func (c *cluster) awaitRegistry(ctx context.Context) {
	if c.shared == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	select {
	case <-c.shared.Ready():
	case <-ctx.Done():
	}
}

// owns is called by the engine with each change of a shard's owner.
func (c *cluster) owns(o wlog.Ownership) {
	if o.Shard > 0 && int(o.Shard) <= len(c.seats) {
		c.seats[o.Shard-1].changed(o)
	}
}

// shards lists the shards that are served here.
func (c *cluster) shards() (all []*shard) {
	for _, t := range c.seats {
		if s := t.shard(); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// serveTime bounds how long a change of a vhost waits until this node serves the changed
// vhost, if this node owns its shard. A change does not wait for another owner.
const serveTime = 5 * time.Second

// await waits until isDone reports true, for serveTime at most, and not while another node
// owns the shard. Shard 0 means that this node's copy of the registry did not have the
// vhost; await does not wait then.
func (c *cluster) await(shard uint32, isDone func() bool) {
	if shard == 0 || int(shard) > len(c.seats) {
		return
	}
	timer := time.NewTimer(serveTime)
	defer timer.Stop()
	for {
		seen := c.seats[shard-1].seen.Load()
		if !seen.mine || isDone() {
			return
		}
		select {
		case <-seen.changed:
		case <-timer.C:
			return
		}
	}
}

// place adds a vhost, or replaces its metadata.
func (c *cluster) place(name string, m vhost.Metadata) (created bool, err error) {
	if was, exists := c.registry.Placement(name); exists {
		if err := c.failure(was.Shard); err != nil {
			return false, fmt.Errorf("vhost %s: is not changed: %w", name, err)
		}
	}
	p, created, err := c.registry.Place(name, m)
	if err != nil {
		return false, err
	}
	c.await(p.Shard, func() bool {
		v, here := c.store.vhosts.lookup(name)
		return here && v.Placement() >= p.Number && v.Metadata().Equal(m)
	})
	return created, nil
}

func (c *cluster) unplace(name string) (existed bool, err error) {
	p, existed := c.registry.Placement(name)
	if existed {
		if err := c.failure(p.Shard); err != nil {
			return true, fmt.Errorf("vhost %s: is not deleted: %w", name, err)
		}
	}
	existed, err = c.registry.Unplace(name)
	if existed && err == nil {
		c.await(p.Shard, func() bool {
			s := c.seats[p.Shard-1].shard()
			if s == nil {
				return true
			}
			v, left := s.guests.lookup(name) // it is there until its deletion ends; clients do not find it any more once that begins
			return !left || v.Placement() > p.Number
		})
	}
	return existed, err
}

// setLowSpace is called when the disk has too little space for a shard's log, and when it has enough again.
func (c *cluster) setLowSpace(shard uint32, low bool) {
	if shard == 0 || int(shard) > len(c.seats) {
		return
	}
	c.seats[shard-1].setLowSpace(low)
}
