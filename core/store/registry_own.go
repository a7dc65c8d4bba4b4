package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// registryTerms follows who owns the registry.
type registryTerms struct {
	wake chan struct{} // capacity 1: there is something to look at

	mu     sync.Mutex // guards what follows
	latest wlog.Ownership
	taking context.CancelFunc // ends a takeover in progress; nil = there is none
}

// Owner returns the node that owns the registry, as far as this node knows; 0 = nobody does.
func (r *Registry) Owner() wlog.NodeID { return r.terms.owner().Owner }

func (t *registryTerms) owner() wlog.Ownership {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.latest
}

// changed is told who owns the registry now.
func (t *registryTerms) changed(o wlog.Ownership) {
	if o.Shard != registryShard {
		return
	}
	t.mu.Lock()
	t.latest = o
	if t.taking != nil {
		t.taking()
	}
	t.mu.Unlock()
	t.look()
}

// look has serveTerms look.
func (t *registryTerms) look() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// begin returns a context for a takeover. It ends when ownership changes.
func (t *registryTerms) begin(ctx context.Context, o wlog.Ownership) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taking = cancel
	if t.latest != o {
		cancel()
	}
	return ctx
}

func (t *registryTerms) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taking()
	t.taking = nil
}

// The time after which the registry is taken again if that failed although the node seems to own it. With the longest one it is given
// up, too: another node may be able to write it.
const (
	firstTake = 100 * time.Millisecond
	lastTake  = 10 * time.Second
)

// serveTerms takes the registry over when this node owns it, and gives it up.
func (r *Registry) serveTerms() {
	stop := r.options.Cluster.Owners(r.terms.changed)
	defer stop()
	var own *registryOwner
	var tried wlog.Ownership
	again := firstTake
	for r.ctx.Err() == nil {
		o := r.terms.owner()
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
				retry = time.After(again) // it may still own it
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

// giveUp ends a term. own may be nil.
func (r *Registry) giveUp(own *registryOwner) {
	if own == nil {
		return
	}
	r.log.drop(own)
	ctx, cancel := context.WithCancel(r.ctx)
	cancel() // what waits is written by the next owner's clients again
	_ = own.writer.Close(ctx)
}

// take takes the registry over. Without success it returns nil.
func (r *Registry) take(o wlog.Ownership) *registryOwner {
	ctx := r.terms.begin(r.ctx, o)
	defer r.terms.end()
	own, err := r.open(ctx, o.Epoch)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, wlog.ErrNotOwner) && !errors.Is(err, wlog.ErrLost) {
			r.options.Log.Error("the registry cannot be taken over, although this node owns it", "error", err)
		}
		return nil
	}
	if err := r.begin(ctx, own); err != nil {
		r.giveUp(own)
		if ctx.Err() == nil {
			r.options.Log.Error("this node owns the registry, but cannot begin to write to it", "error", err)
		}
		return nil
	}
	return own
}

// open opens the log, and waits until the copy has all that is in it.
func (r *Registry) open(ctx context.Context, epoch uint64) (*registryOwner, error) {
	engine := &indexedEngine{Engine: r.options.Cluster}
	own := &registryOwner{epoch: epoch, log: &engine.log}
	usage := newRegistryUsage()
	var err error
	own.writer, err = journal.Open(ctx, engine, registryShard, usage.replay, journal.Options{
		Extent: cmp.Or(r.options.Extent, definitionsExtent), Slack: r.log.minCompactBytes,
		Purpose: wlog.Moving, // as definitions of a single broker
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

// follows waits until the copy has everything through an index. It fails if the copy does not get so far in time: the log cannot be read.
func (r *Registry) follows(ctx context.Context, through wlog.Index) error {
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	if err := r.WaitApplied(ctx, through); err != nil {
		return errors.Join(fmt.Errorf("this node does not follow the registry: %w", err), r.Err())
	}
	return nil
}

// failed is called when a term's log cannot be written any more. It does not wait.
func (r *Registry) failed(own *registryOwner, err error) {
	if r.log.drop(own) && !errors.Is(err, wlog.ErrLost) && !errors.Is(err, wlog.ErrNotOwner) {
		r.options.Log.Error("the registry's log failed", "error", err)
	}
	r.terms.look()
}

// begin makes what a new cluster has, and what else is to be done by a new owner.
func (r *Registry) begin(ctx context.Context, own *registryOwner) error {
	if own.log.last.Load() == 0 {
		defs, err := r.firstDefinitions()
		if err == nil {
			err = r.await(r.log.commit(defs))
		}
		if err != nil {
			return fmt.Errorf("a new cluster: %w", err)
		}
		r.options.Log.Info("the cluster begins", "cluster", r.options.Name, "nodes", len(r.options.Members))
	} else if err := r.settle(); err != nil {
		return fmt.Errorf("a cluster that began with data: %w", err)
	}
	if r.options.Owned == nil {
		return nil
	}
	return r.options.Owned(ctx)
}

// settle makes the nodes members, if no member is one of them: the data is that of a broker without a cluster, or of another cluster.
func (r *Registry) settle() error {
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
	return r.write(defs...)
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

// reclaim has definitions in extents up to upTo written again, along with all others of their scopes. It does not wait.
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
	r.changing.Lock()
	defer r.changing.Unlock()
	r.compact()
	for _, m := range r.Modules() {
		if r.log.needsRewrite(scope{scopeModule, m.Name}) && r.writeModule(m) != nil {
			return
		}
	}
}

// compact writes members and placements again, if that pays. The caller holds changing.
func (r *Registry) compact() {
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
		r.log.rewrite(scope{kind: of}, definition.Parts(all))
	}
}
