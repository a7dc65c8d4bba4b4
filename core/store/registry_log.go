package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/wlog"
)

// registryLog writes to the registry's log while this node owns it.
type registryLog struct {
	minCompactBytes int64

	mu    sync.Mutex     // guards the fields below
	own   *registryOwner // nil = another node owns it
	usage *registryUsage // of own
	upTo  uint32         // definitions in extents up to this one are to be written again

	reclaiming bool // see reclaim
}

// registryOwner is the registry's log in one of the terms in which this node owns it.
type registryOwner struct {
	epoch  uint64
	writer *journal.Writer
	log    *indexedLog
}

// isLost reports whether another node may own the log by now.
func (o *registryOwner) isLost() bool {
	select {
	case <-o.log.Lost():
		return true
	default:
		return false
	}
}

// indexedLog remembers where the latest entry is.
type indexedLog struct {
	wlog.Log
	last atomic.Uint64
}

// Depth implements [wlog.Log]. With several entries on their way, last would be wrong.
func (l *indexedLog) Depth() int { return 1 }

func (l *indexedLog) Append(ctx context.Context, entry []byte, purpose wlog.Purpose) (wlog.Index, error) {
	at, err := l.Log.Append(ctx, entry, purpose)
	if err == nil {
		l.last.Store(uint64(at))
	}
	return at, err
}

// indexedEngine opens logs that remember where their latest entry is.
type indexedEngine struct {
	wlog.Engine
	log indexedLog
}

func (e *indexedEngine) Open(ctx context.Context, shard uint32, fn func(at wlog.Index, entry []byte) error) (wlog.Log, error) {
	log, err := e.Engine.Open(ctx, shard, func(at wlog.Index, entry []byte) error {
		e.log.last.Store(uint64(at))
		return fn(at, entry)
	})
	if err != nil {
		return nil, err
	}
	e.log.Log = log
	return &e.log, nil
}

// registryTicket is the [journal.Completer] of one commit.
type registryTicket struct {
	own  *registryOwner
	done chan struct{}
	at   wlog.Index // of the commit's entry, or of a later one
	err  error      // why it may not be durable
}

func (t *registryTicket) Durable() {
	t.at = wlog.Index(t.own.log.last.Load())
	close(t.done)
}

func (t *registryTicket) Failed(err error) {
	t.err = err
	close(t.done)
}

// owner returns the log that this node owns, or nil.
func (l *registryLog) owner() *registryOwner {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.own
}

func (l *registryLog) begin(own *registryOwner, usage *registryUsage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own, l.usage, l.upTo = own, usage, 0
}

// drop ends a term, and reports whether it had not ended before.
func (l *registryLog) drop(own *registryOwner) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own == nil || l.own != own {
		return false
	}
	l.own, l.usage = nil, nil
	return true
}

// commitIn writes definitions in one entry, in the term own; nil = this node did not own
// the registry when they were planned.
func (l *registryLog) commitIn(own *registryOwner, defs []byte) *registryTicket {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &registryTicket{own: own, done: make(chan struct{})}
	if own == nil || l.own != own {
		t.Failed(wlog.ErrUnwritten)
		return t
	}
	extent := l.own.writer.Extent()
	var live int64
	var deltas []journal.Delta
	for d, err := range definition.Parse(defs) {
		if err != nil {
			panic(fmt.Errorf("a definition that was just made: %w", err))
		}
		n, voided := l.usage.count(extent, d)
		live += n
		deltas = append(deltas, voided...)
	}
	l.own.writer.Commit(defs, append(deltas, journal.Delta{Extent: extent, Bytes: live}), t)
	return t
}

// rewrite replaces all definitions of a scope by those in parts, in the term own. The
// caller keeps others from writing definitions of the scope.
func (l *registryLog) rewrite(own *registryOwner, of scope, parts iter.Seq[[]byte]) {
	l.mu.Lock()
	if own == nil || l.own != own {
		l.mu.Unlock()
		return
	}
	voided := l.usage.of(of).reset()
	l.mu.Unlock()
	p := part{of: of, first: true}
	for defs := range parts {
		p.definitions = defs
		l.writePart(own, &p, nil)
		p.first = false
	}
	p.last, p.definitions = true, nil
	l.writePart(own, &p, voided)
}

func (l *registryLog) writePart(own *registryOwner, p *part, voided []journal.Delta) {
	b := amqp.AppendTable(nil, p.definition())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.own != own {
		return // the earlier definitions stay in force
	}
	u := l.usage.of(p.of)
	extent := own.writer.Extent()
	u.add(extent, int64(len(b)))
	own.writer.Commit(b, append(voided, journal.Delta{Extent: extent, Bytes: int64(len(b))}), nil)
	if p.last {
		u.compacted = u.bytes
	}
}

// needsRewrite reports whether a scope should be written again, because that pays or
// reclaim has asked for it.
func (l *registryLog) needsRewrite(of scope) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.own == nil {
		return false
	}
	u := l.usage.of(of)
	return u.isBulky(l.minCompactBytes) && of.kind != scopeModule || u.reaches(l.upTo)
}

// reclaim asks for definitions in extents up to upTo to be written again. It reports
// whether the caller should begin with that; the caller calls reclaimed when it is done.
func (l *registryLog) reclaim(own *registryOwner, upTo uint32) (begin bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.own != own {
		return false
	}
	begin = !l.reclaiming
	l.upTo, l.reclaiming = upTo, true
	return begin
}

func (l *registryLog) reclaimed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reclaiming = false
}

// registryUsage is how much of the registry's log each scope uses.
type registryUsage struct {
	fold
	upload logUsage // of the pieces of a module that is not there yet
}

func newRegistryUsage() *registryUsage {
	u := &registryUsage{fold: newFold(registryScopeOf, func(scope) *foldScope { return &foldScope{} })}
	u.fold.count = func(extent uint32, d *definition.Definition) { u.count(extent, d) }
	return u
}

// of returns how much a scope uses.
func (u *registryUsage) of(of scope) *logUsage { return u.at(of).usage }

// count accounts for a definition, and returns how many bytes of it are live and which
// earlier bytes are dead now. A definition that deletes a module is dead at once: it lies
// behind the definitions of the module, and a log is trimmed from its front.
func (u *registryUsage) count(extent uint32, d *definition.Definition) (live int64, voided []journal.Delta) {
	of, err := registryScopeOf(d)
	if err != nil {
		return 0, nil // another part of the program refuses it
	}
	switch d.Op {
	case opModulePart:
		if from, _ := d.Fields.Lookup(fieldFrom); from == int64(0) {
			voided = u.upload.reset()
		}
		u.upload.add(extent, int64(d.Size))
		return int64(d.Size), voided
	case opSetModule:
		voided = u.of(of).reset()
		*u.of(of) = u.upload
		u.upload = logUsage{}
	case opDeleteModule:
		voided = u.of(of).reset()
		delete(u.scopes, of)
		return 0, voided
	default:
		if resets(d.Op) {
			voided = u.of(of).reset()
		}
	}
	u.of(of).add(extent, int64(d.Size))
	return int64(d.Size), voided
}

// live returns the live bytes of the log. Pieces of an unfinished module are not live.
func (u *registryUsage) live() (all []journal.Delta) {
	u.upload = logUsage{}
	for _, s := range u.scopes {
		all = append(all, s.usage.extents...)
	}
	return all
}

// registryScopeLog is the [definition.Log] of one scope of a registry. Definitions take
// effect when this node follows them, and WaitDurable waits for that.
type registryScopeLog struct {
	registry *Registry
	of       scope

	mu      sync.Mutex        // guards the fields below
	own     *registryOwner    // the term in which the latest change is planned
	tickets []*registryTicket // of writes since the latest WaitDurable
}

var _ definition.Log = (*registryScopeLog)(nil)

// plan begins a change: the next definitions are written in the present term, or not at
// all. The caller holds the lock on changes of the scope.
func (l *registryScopeLog) plan() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own = l.registry.log.owner()
}

func (l *registryScopeLog) planned() *registryOwner {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.own
}

func (l *registryScopeLog) Write(defs []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tickets = append(l.tickets, l.registry.log.commitIn(l.own, defs))
}

func (l *registryScopeLog) NeedsCompaction() bool { return l.registry.log.needsRewrite(l.of) }

func (l *registryScopeLog) Rewrite(parts iter.Seq[[]byte]) {
	l.registry.log.rewrite(l.planned(), l.of, parts)
}

// WaitDurable implements [definition.Log]. If nothing was written, WaitDurable returns nil
// only if this node still owns the registry: then reads since plan were up to date.
func (l *registryScopeLog) WaitDurable() error {
	l.mu.Lock()
	tickets, own := l.tickets, l.own
	l.tickets = nil
	l.mu.Unlock()
	if len(tickets) == 0 {
		return l.registry.confirm(own)
	}
	var errs []error
	for _, t := range tickets {
		errs = append(errs, l.registry.await(t))
	}
	return errors.Join(errs...)
}

// writer returns the writer of the registry's log; nil = this node does not own it.
func (r *Registry) writer() *journal.Writer {
	if own := r.log.owner(); own != nil {
		return own.writer
	}
	return nil
}
