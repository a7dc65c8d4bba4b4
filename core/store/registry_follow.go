package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/wlog"
)

// registryCopy is a node's copy of the registry, except for users and global parameters.
type registryCopy struct {
	mu      sync.RWMutex // guards the fields below
	state   registryState
	applied wlog.Index
	changed chan struct{} // closed when the next entry has taken effect
	ready   chan struct{} // closed with the first state, once modules were passed on
	whole   bool          // the state is complete
	err     error         // why the log cannot be followed; nil = it can
}

// Applied returns the index of the last entry that has taken effect on this node; 0 = there is none.
func (r *Registry) Applied() wlog.Index {
	r.copy.mu.RLock()
	defer r.copy.mu.RUnlock()
	return r.copy.applied
}

// Changed returns a channel that is closed when the next entry has taken effect. To miss no
// change, get the channel before you read the copy.
func (r *Registry) Changed() <-chan struct{} {
	r.copy.mu.RLock()
	defer r.copy.mu.RUnlock()
	return r.copy.changed
}

// Err returns why this node cannot follow the registry, nil if it can.
func (r *Registry) Err() error {
	r.copy.mu.RLock()
	defer r.copy.mu.RUnlock()
	return r.copy.err
}

// WaitApplied returns when the entry at an index, and all before it, have taken effect on this node.
func (r *Registry) WaitApplied(ctx context.Context, at wlog.Index) error {
	for {
		changed := r.Changed()
		if r.Applied() >= at {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-r.ctx.Done():
			return wlog.ErrClosed
		}
	}
}

// Fresh returns when this node has seen everything that was durable on any node when Fresh was called. It fails with
// [wlog.ErrNoOwner] while no node owns the registry.
func (r *Registry) Fresh(ctx context.Context) error {
	at, err := r.options.Cluster.Barrier(ctx, registryShard)
	if err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	return r.WaitApplied(ctx, at)
}

// follow keeps the copy up to date until the registry is closed.
func (r *Registry) follow() {
	const first, longest = 10 * time.Millisecond, 5 * time.Second
	wait := first
	for r.ctx.Err() == nil {
		before := r.Applied()
		err := r.followOnce()
		if r.ctx.Err() != nil {
			return
		}
		if r.Applied() != before {
			wait = first
		}
		r.damaged(err)
		pause(r.ctx, wait)
		wait = min(2*wait, longest)
	}
}

// damaged notes why the log cannot be followed; nil = it can.
func (r *Registry) damaged(err error) {
	r.copy.mu.Lock()
	was := r.copy.err
	r.copy.err = err
	if err != nil {
		r.announce() // callers of follows stop waiting for an entry that may not come for long
	}
	r.copy.mu.Unlock()
	switch {
	case was == nil && err == nil, was != nil && err != nil && was.Error() == err.Error():
		return
	case err != nil:
		r.options.Log.Error("the registry cannot be followed: this node does not get later changes", "error", err)
	}
	if r.options.Damaged != nil {
		r.options.Damaged(err)
	}
}

// followOnce follows the log from its beginning until that fails.
func (r *Registry) followOnce() error {
	ctx, cancel := context.WithCancelCause(r.ctx)
	f := &registryFollower{registry: r, ctx: ctx, fail: cancel}
	err := r.options.Cluster.Follow(ctx, registryShard, f.heard)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(err)
	f.searching.Wait()
	return err
}

// registryFollower is one attempt to follow the log. When the log has to be followed from
// its beginning again, the follower builds a new state beside the one in force. It puts the
// new state in force once that has everything that was durable when it was begun: the first
// entries of a trimmed log are complete only together with the entries that were written
// when the log was trimmed.
type registryFollower struct {
	registry  *Registry
	ctx       context.Context // ends with the attempt
	fail      context.CancelCauseFunc
	searching sync.WaitGroup

	mu      sync.Mutex // guards the fields below, and is held while entries take effect
	beside  *registryFold
	round   int        // of beside
	at      wlog.Index // the last entry
	through wlog.Index // how far beside has to follow, once known is set
	known   bool
}

// heard is called with each entry. anew means that state from earlier entries is void.
func (f *registryFollower) heard(at wlog.Index, entry []byte, anew bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if anew {
		f.begin()
	}
	f.at = at
	if f.beside == nil {
		return f.registry.apply(at, entry)
	}
	if err := f.beside.entry(0, at, entry); err != nil {
		return err
	}
	return f.finish()
}

// begin begins a state beside the one in force. The caller holds mu.
func (f *registryFollower) begin() {
	f.beside, f.known = newRegistryFold(), false
	f.round++
	round := f.round
	f.searching.Go(func() { f.search(round) })
}

// search finds out how far the state beside the one in force has to follow.
func (f *registryFollower) search(round int) {
	const again = 100 * time.Millisecond
	for {
		through, err := f.registry.options.Cluster.Barrier(f.ctx, registryShard)
		if err == nil {
			f.found(round, through)
			return
		}
		if !pause(f.ctx, again) {
			return
		}
	}
}

func (f *registryFollower) found(round int, through wlog.Index) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.round != round {
		return
	}
	f.through, f.known = through, true
	if err := f.finish(); err != nil {
		f.fail(err)
	}
}

// finish puts the state beside in force if it is whole. The caller holds mu.
func (f *registryFollower) finish() error {
	if f.beside == nil || !f.known || f.at < f.through {
		return nil
	}
	if err := f.beside.err(); err != nil {
		return err
	}
	fold := f.beside
	f.beside = nil
	return f.registry.replace(f.at, fold)
}

// apply puts the next entry in force.
func (r *Registry) apply(at wlog.Index, entry []byte) error {
	e, err := parseRegistryEntry(entry)
	if err == nil {
		err = r.applyState(e.state)
	}
	if err == nil && len(e.users) > 0 {
		err = r.users.Follow(e.users)
	}
	if err == nil && len(e.globals) > 0 {
		err = r.globals.follow(e.globals)
	}
	if err != nil {
		return fmt.Errorf("entry %#x: %w", at, err)
	}
	r.applied(at)
	return nil
}

// applyState applies definitions of members, placements and modules, all at once.
func (r *Registry) applyState(defs []*definition.Definition) (err error) {
	r.copy.mu.Lock()
	defer r.copy.mu.Unlock()
	for _, d := range defs {
		err = errors.Join(err, r.copy.state.Apply(d))
	}
	return err
}

// replace puts a state in force that was built beside the one before.
func (r *Registry) replace(at wlog.Index, fold *registryFold) error {
	users, err := parseRegistryEntry(fold.users.Definitions())
	if err == nil {
		err = r.users.Follow(users.users)
	}
	if err != nil {
		return fmt.Errorf("users: %w", err)
	}
	r.globals.replace(fold.globals)
	r.copy.mu.Lock()
	r.copy.state, r.copy.whole = fold.state, true
	r.copy.mu.Unlock()
	r.applied(at)
	r.damaged(nil)
	return nil
}

// applied notes that everything through an index has taken effect.
func (r *Registry) applied(at wlog.Index) {
	r.copy.mu.Lock()
	defer r.copy.mu.Unlock()
	r.copy.applied = at
	r.announce()
}

// announce wakes all callers that wait for a change. The caller holds the copy's mu.
func (r *Registry) announce() {
	close(r.copy.changed)
	r.copy.changed = make(chan struct{})
}

// passModules passes the modules on, whenever they have changed. Then, the first time, the registry is ready.
func (r *Registry) passModules() {
	passed := map[string]int64{} // revisions, by name
	first := true
	for {
		changed := r.Changed()
		if r.isWhole() {
			r.passChanged(passed, first)
			if first {
				close(r.copy.ready)
				first = false
			}
		}
		select {
		case <-changed:
		case <-r.ctx.Done():
			return
		}
	}
}

func (r *Registry) isWhole() bool {
	r.copy.mu.RLock()
	defer r.copy.mu.RUnlock()
	return r.copy.whole
}

// passChanged passes the modules on if they differ from the passed ones, or always is set.
func (r *Registry) passChanged(passed map[string]int64, always bool) {
	all := r.Modules()
	same := len(all) == len(passed)
	for _, m := range all {
		revision, known := passed[m.Name]
		same = same && known && revision == m.Revision
	}
	if same && !always || r.options.Modules == nil {
		return
	}
	clear(passed)
	for _, m := range all {
		passed[m.Name] = m.Revision
	}
	r.options.Modules(all)
}
