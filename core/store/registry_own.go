package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// Owner returns the node that owns the registry, as far as this node knows; 0 = none does.
func (r *Registry) Owner() wlog.NodeID { return r.terms.ownership().Owner }

// owns is called with each change of a shard's owner.
func (r *Registry) owns(o wlog.Ownership) {
	if o.Shard == registryShard && r.terms.set(o) {
		r.terms.look()
	}
}

// The pause before the registry is taken over again, after an attempt failed although the
// node seems to own it. The pause doubles up to lastTake; then the node also gives the
// registry up, because another node may be able to write it.
const (
	firstTake = 100 * time.Millisecond
	lastTake  = 10 * time.Second
)

// serveTerms takes the registry over when this node owns it, and gives it up.
func (r *Registry) serveTerms() {
	stop := r.options.Cluster.Owners(r.owns)
	defer stop()
	var own *registryOwner
	var tried wlog.Ownership
	again := firstTake
	for r.ctx.Err() == nil {
		o := r.terms.ownership()
		if tried != o {
			tried, again = o, firstTake
		}
		if own != nil && (!o.Mine || own.epoch != o.Epoch || own.isLost()) {
			r.giveUp(own)
			own = nil
		}
		var retry <-chan time.Time
		if o.Mine && own == nil {
			if own = r.take(o); own == nil {
				retry = time.After(again) // this node may still own the registry
				if again = min(2*again, lastTake); again == lastTake && r.options.GiveUp != nil {
					r.options.GiveUp(registryShard)
				}
			}
		}
		select {
		case <-r.terms.wake: // at once, if ownership changed meanwhile
		case <-retry:
		case <-r.ctx.Done():
		}
	}
	r.giveUp(own)
}

// own takes the registry over where there is no other node, and returns when the copy is ready.
func (r *Registry) own(ctx context.Context) error {
	r.options.Cluster.Owners(r.owns)
	own, err := r.open(ctx, r.terms.ownership().Epoch)
	if err == nil {
		err = r.begin(ctx, own)
	}
	if err != nil {
		return err
	}
	select {
	case <-r.Ready():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// giveUp ends a term. own may be nil.
func (r *Registry) giveUp(own *registryOwner) {
	if own == nil {
		return
	}
	r.log.drop(own)
	ctx, cancel := context.WithCancel(r.ctx)
	cancel() // waiting changes fail: clients repeat them at the next owner
	_ = own.writer.Close(ctx)
}

// take takes the registry over. It returns nil if that fails.
func (r *Registry) take(o wlog.Ownership) *registryOwner {
	var own *registryOwner
	over, err := r.terms.take(r.ctx, o, func(ctx context.Context) (err error) {
		if own, err = r.open(ctx, o.Epoch); err != nil {
			return fmt.Errorf("its log cannot be taken over: %w", err)
		}
		return r.begin(ctx, own)
	})
	if err == nil {
		return own
	}
	r.giveUp(own)
	if over == nil && !errors.Is(err, wlog.ErrNotOwner) && !errors.Is(err, wlog.ErrLost) {
		r.options.Log.Error("this node owns the registry, but cannot write to it", "error", err)
	}
	return nil
}

// open opens the log, and waits until the copy has all its entries.
func (r *Registry) open(ctx context.Context, epoch uint64) (*registryOwner, error) {
	engine := &indexedEngine{Engine: r.options.Cluster}
	own := &registryOwner{epoch: epoch, log: &engine.log}
	usage := newRegistryUsage()
	entry := usage.entry
	if r.options.Replayed != nil {
		entry = func(extent uint32, at wlog.Index, b []byte) error {
			r.options.Replayed(b)
			return usage.entry(extent, at, b)
		}
	}
	var err error
	own.writer, err = journal.Open(ctx, engine, registryShard, entry, journal.Options{
		Extent: cmp.Or(r.options.Extent, definitionsExtent), Slack: r.log.minCompactBytes,
		OnFull: func(full bool) {
			if r.options.Full != nil {
				r.options.Full(full)
			}
		},
		OnFailed: func(err error) { r.failed(own, err) },
		Reclaim:  func(upTo uint32) { r.reclaim(own, upTo) },
	})
	if err != nil {
		return nil, err
	}
	own.writer.Recovered(usage.live())
	if err := r.follows(ctx, wlog.Index(own.log.last.Load())); err != nil {
		_ = own.writer.Close(ctx)
		return nil, err
	}
	r.log.begin(own, usage)
	return own, nil
}

// follows waits until the copy has everything through an index. It fails if that takes
// longer than confirmTime: then this node cannot read the log.
func (r *Registry) follows(ctx context.Context, through wlog.Index) error {
	if !r.options.Sole {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, confirmTime)
		defer cancel()
	}
	for {
		changed := r.Changed()
		err := r.Err()
		switch {
		case r.Applied() >= through:
			return nil
		case err != nil && r.options.Sole:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("this node does not follow the registry: %w", ctx.Err()), err)
		case <-r.ctx.Done():
			return wlog.ErrClosed
		}
	}
}

// failed is called when a term's log cannot be written any more. It does not wait.
func (r *Registry) failed(own *registryOwner, err error) {
	if r.options.Sole {
		r.options.Log.Error("the log of users, virtual hosts and global parameters failed: none can be changed until the broker is started again", "error", err)
		r.options.Damaged(err)
		return
	}
	if r.log.drop(own) && !errors.Is(err, wlog.ErrLost) && !errors.Is(err, wlog.ErrNotOwner) {
		r.options.Log.Error("the registry's log failed", "error", err)
	}
	r.terms.look()
}

// begin does the work of a new owner: it writes the first definitions of a new cluster, or
// settles a cluster that began with data, and calls Owned.
func (r *Registry) begin(ctx context.Context, own *registryOwner) error {
	if own.log.last.Load() == 0 {
		defs, err := r.firstDefinitions()
		if err == nil {
			err = r.await(r.log.commitIn(own, defs))
		}
		if err != nil {
			return fmt.Errorf("a new registry: %w", err)
		}
		if !r.options.Sole {
			r.options.Log.Info("the cluster begins", "cluster", r.options.Name, "nodes", len(r.options.Members))
		}
	} else if err := r.settle(own); err != nil {
		return fmt.Errorf("a cluster that began with data: %w", err)
	}
	if r.options.Owned == nil {
		return nil
	}
	return r.options.Owned(ctx)
}

// settle makes the nodes of this cluster its members, if none of them is a member: then the
// data is from a broker without a cluster, or from another cluster.
func (r *Registry) settle(own *registryOwner) error {
	members := r.Members()
	strange := func(m Member) bool {
		return !slices.ContainsFunc(r.options.Members, func(o Member) bool { return o.Number == m.Number })
	}
	if len(r.options.Members) == 0 || slices.ContainsFunc(members, func(m Member) bool { return !strange(m) }) {
		return nil
	}
	defs := []amqp.Table{defineName(opSetCluster, r.options.Name)}
	for _, m := range members {
		defs = append(defs, defineMemberRemoved(m.Number))
	}
	for _, m := range r.options.Members {
		defs = append(defs, defineMember(&m))
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	r.options.Log.Info("the cluster begins with data", "cluster", r.options.Name, "nodes", len(r.options.Members))
	return r.write(own, defs...)
}

// firstDefinitions returns the definitions of a new cluster: its members, the vhost "/", and the user guest.
func (r *Registry) firstDefinitions() ([]byte, error) {
	users := auth.New(auth.Options{Hashing: r.options.Hashing})
	if err := users.CreateDefaults(); err != nil {
		return nil, err
	}
	s := newRegistryState()
	s.cluster = r.options.Name
	for _, m := range r.options.Members {
		s.members[m.Number] = m
	}
	p := Placement{VHost: DefaultVHost, Shard: 1, Number: 1, Metadata: vhost.Metadata{Description: "Default virtual host"}}
	var defs []byte
	for d := range s.membership {
		defs = amqp.AppendTable(defs, d)
	}
	defs = amqp.AppendTable(defs, defineNoPlacements(0))
	defs = amqp.AppendTable(defs, definePlacement(&p))
	return append(defs, users.Definitions()...), nil
}

// reclaim begins to rewrite all scopes that have definitions in extents up to upTo. It does
// not wait.
func (r *Registry) reclaim(own *registryOwner, upTo uint32) {
	if r.log.reclaim(own, upTo) {
		r.running.Go(func() {
			defer r.log.reclaimed()
			r.compactAll()
		})
	}
}

func (r *Registry) compactAll() {
	r.users.CompactDefinitions()
	r.globals.compactDefinitions()
	r.compact(r.plan())
	r.changing.Unlock()
	for _, m := range r.Modules() {
		if r.compactModule(m.Name) != nil {
			return
		}
	}
}

// compactModule writes a module again, if that is needed. It holds the lock for this module
// only, so that other modules can be changed in between.
func (r *Registry) compactModule(name string) error {
	own := r.planModule()
	defer r.modules.Unlock()
	all := r.Modules()
	at := slices.IndexFunc(all, func(m *Module) bool { return m.Name == name })
	if at < 0 || !r.log.needsRewrite(scope{scopeModule, name}) {
		return nil
	}
	return r.writeModule(own, all[at])
}

// compact writes members and placements again, if that pays. The caller holds changing.
func (r *Registry) compact(own *registryOwner) {
	for _, of := range []string{scopeMembers, scopePlacements} {
		if !r.log.needsRewrite(scope{kind: of}) {
			continue
		}
		r.copy.mu.RLock()
		s := r.copy.state.withoutModules()
		r.copy.mu.RUnlock()
		all := s.membership
		if of == scopePlacements {
			all = s.placing
		}
		r.log.rewrite(own, scope{kind: of}, definition.Parts(all))
	}
}
