package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/vhost"
)

// The owner of a shard makes and deletes vhosts until the shard has those that the registry
// places in it. Its copy of the registry may be old. Once the copy is newer, the owner
// undoes changes that the old copy led to; and it never deletes a vhost that is newer than
// its copy.

// dutyRetry is how long the owner waits after a failure before it tries again.
const dutyRetry = time.Second

// attend starts to keep a shard's vhosts as the registry says, until the shard is dropped.
// It does not wait.
func (c *cluster) attend(ctx context.Context, s *shard) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	s.leaves = cancel
	s.attends = func() {
		cancel()
		running.Wait()
	}
	running.Go(func() {
		for ctx.Err() == nil {
			changed := c.registry.Changed()
			var again <-chan time.Time
			if err := c.reconcile(ctx, s); err != nil && ctx.Err() == nil && s.Err() == nil {
				c.store.log.Warn("a shard does not have the vhosts that the registry places in it: trying again", "shard", s.number, "error", err)
				again = time.After(dutyRetry)
			}
			select {
			case <-changed:
			case <-again:
			case <-ctx.Done():
			}
		}
	})
}

// reconcile makes, changes and deletes vhosts as the registry says.
func (c *cluster) reconcile(ctx context.Context, s *shard) error {
	all, given := c.registry.Placements(s.number)
	placed := make(map[string]Placement, len(all))
	for _, p := range all {
		placed[p.VHost] = p
	}
	for _, v := range s.guests.list() {
		p, ok := placed[v.Name()]
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case ok && p.Number == v.Placement():
			if err := c.describe(s, v, p.Metadata); err != nil {
				return err
			}
		case given >= v.Placement():
			if err := c.remove(s, v); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(all, func(a, b Placement) int { return cmp.Compare(a.Number, b.Number) })
	for _, p := range all {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if s.guests.has(p.VHost) {
			continue
		}
		if err := c.make(s, p); err != nil {
			return err
		}
	}
	return nil
}

// describe gives a vhost the metadata that the registry has.
func (c *cluster) describe(s *shard, v vhostEntry, m vhost.Metadata) error {
	is := v.Metadata()
	if is.Equal(m) {
		return nil
	}
	if err := v.SetMetadata(m); err != nil {
		return fmt.Errorf("vhost %s: %w", v.Name(), err)
	}
	s.seat.changedHere()
	return nil
}

// make makes the vhost of a placement.
func (c *cluster) make(s *shard, p Placement) error {
	log := newDefinitionLog(s, scope{scopeVHost, p.VHost})
	p.Metadata.Tags = slices.Clone(p.Metadata.Tags)
	v := c.store.newVHost(s, p.VHost, p.Metadata, p.Number, log)
	log.Rewrite(slices.Values([][]byte{v.Definitions()}))
	if err := log.WaitDurable(); err != nil {
		return fmt.Errorf("vhost %s: is not added: %w", p.VHost, err)
	}
	s.guests.add(v)
	s.publish(&c.store.vhosts, v)
	s.seat.changedHere()
	c.store.log.Info("vhost added", "vhost", p.VHost, "shard", s.number)
	return nil
}

// remove deletes a vhost that has no place any more.
func (c *cluster) remove(s *shard, v vhostEntry) error {
	c.store.vhosts.withdraw(v)
	s.numbers.Write(amqp.AppendTable(nil, numbersDefinition("", s.lastNumber.Load())))
	if err := v.Delete(); err != nil {
		return fmt.Errorf("vhost %s: is not deleted: %w", v.Name(), err)
	}
	v.log.release()
	s.guests.remove(v.Name())
	s.seat.changedHere()
	c.store.log.Info("vhost deleted", "vhost", v.Name(), "shard", s.number)
	return nil
}
