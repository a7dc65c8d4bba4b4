package store

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/wlog"
)

// Registry is the data that all nodes of a cluster share: its members, the shard of each
// vhost, users with their permissions, global parameters, and modules. Each node has a
// copy, which follows shard 0. Only the owner of that shard writes; elsewhere changes fail
// at once with [wlog.ErrNotOwner].
//
// On all nodes, also on the owner, the copy is a fold over the entries that a majority has,
// and over nothing else. A change returns once this node has followed the log up to the
// change. So each change takes effect exactly once, even if the owner changes meanwhile. A
// Registry is safe for concurrent use.
type Registry struct {
	options registryOptions
	ctx     context.Context    // ends with Close
	cancel  context.CancelFunc // ends ctx
	running sync.WaitGroup

	users   *auth.Store
	userLog *registryScopeLog // of users
	globals *globals
	copy    registryCopy
	log     registryLog
	terms   terms

	changing definition.Lock // held during a change of members or placements, until it has taken effect
	modules  definition.Lock // held during a change of a module: pieces of two modules must not mix. Other changes do not wait for it
}

// registryShard is the shard of a cluster that has its registry.
const registryShard = 0

// registryOptions configure a registry.
type registryOptions struct {
	Cluster wlog.Cluster
	Shards  int // that new vhosts are spread over, 1 to [MaxShards]
	Log     *slog.Logger
	Hashing auth.Algorithm // of new passwords; "" = the default
	Extent  int64          // bytes of the log's extents, and from which on a scope is written again; 0 = the defaults

	// Name and Members describe a cluster that starts for the first time; they must be
	// equal on all nodes.
	Name    string
	Members []Member

	// Owned is called each time that this node has begun to own the registry, before other
	// nodes send changes to it. nil = no call.
	Owned func(ctx context.Context) error
	// Modules is called with all modules before the registry is ready, and whenever they
	// have changed: one call at a time. nil = no call.
	Modules func([]*Module)
	// Damaged is called with the error that keeps the log from being followed, and with nil
	// once it can be followed again. nil = no call.
	Damaged func(error)
	// GiveUp is called if this node owns the registry but cannot write to it, so another
	// should own it. It must not block. nil = no call.
	GiveUp func(shard uint32)
	// Full is called with true if the disk has no space for a change, and with false once it has. nil = no call.
	Full func(full bool)
	// Failure returns why a shard cannot take a vhost; nil = it can.
	Failure func(shard uint32) error
	// Sole means that there is no other node: own takes the log over, once, and a failure
	// is final.
	Sole     bool
	Replayed func(entry []byte) // is called with each entry when the log is taken over; nil = no call
}

// newRegistry returns a registry that follows and, when this node owns it, writes, until close.
func newRegistry(ctx context.Context, o registryOptions) *Registry {
	r := &Registry{options: o}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.log.minCompactBytes = cmp.Or(o.Extent, minCompactBytes)
	r.copy = registryCopy{state: newRegistryState(), changed: make(chan struct{}), ready: make(chan struct{})}
	r.terms = newTerms()
	params := &registryScopeLog{registry: r, of: scope{kind: scopeGlobals}}
	r.userLog = &registryScopeLog{registry: r, of: scope{kind: scopeUsers}}
	r.users = auth.New(auth.Options{Hashing: o.Hashing, Definitions: r.userLog, VHost: r.placed, Follows: r.userLog.plan})
	r.globals = &globals{log: params, follows: params.plan, all: globalValues{}}
	r.running.Go(r.follow)
	if !o.Sole {
		r.running.Go(r.serveTerms)
	}
	r.running.Go(r.passModules)
	return r
}

// close ends the registry. Changes that wait fail.
func (r *Registry) close() {
	r.cancel()
	r.running.Wait()
	r.giveUp(r.log.owner())
}

// Users returns the users.
func (r *Registry) Users() *auth.Store { return r.users }

// Ready returns a channel that is closed once the copy has everything that was durable when
// this node began to follow.
func (r *Registry) Ready() <-chan struct{} { return r.copy.ready }

// Owned reports whether this node may change the registry, as far as it knows.
func (r *Registry) Owned() bool { return r.log.owner() != nil }

// confirmTime bounds how long a change waits for other nodes to say that this one still owns the registry.
const confirmTime = 10 * time.Second

// A change is planned in a term, and written in the same term or not at all. Within a term
// the plan is up to date: the copy has everything that was written before the term, and the
// planner's lock keeps others from writing in the term. If the change could be written in a
// later term, another node might have changed in between what the plan was based on.

// confirm returns an error if reads of the copy in a term may have been out of date.
func (r *Registry) confirm(own *registryOwner) error {
	if own == nil {
		return wlog.ErrUnwritten
	}
	if r.options.Sole {
		return own.writer.Err()
	}
	ctx, cancel := context.WithTimeout(r.ctx, confirmTime)
	defer cancel()
	if err := r.Fresh(ctx); err != nil {
		return err
	}
	if r.log.owner() != own || own.isLost() { // another node may have written entries that this node has followed meanwhile
		return wlog.ErrUnwritten
	}
	return nil
}

// await waits until a commit has taken effect on this node.
func (r *Registry) await(t *registryTicket) error {
	<-t.done
	if t.err != nil {
		return fmt.Errorf("registry: %w", t.err)
	}
	return r.WaitApplied(r.ctx, t.at)
}

// pause waits, and reports false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	paused, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-paused.Done()
	return ctx.Err() == nil
}
