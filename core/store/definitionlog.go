package store

import (
	"iter"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
)

// definitionLog writes the definitions of one scope to the shard of definitions. It is the [journal.Completer] of its commits.
type definitionLog struct {
	store *Store
	scope scope

	mu        sync.Mutex // guards what follows
	completed *sync.Cond // signalled when durable or err changes
	written   uint64     // commits
	durable   uint64     // of them
	err       error      // why the shard failed
	usage     logUsage
}

var (
	_ vhost.DefinitionLog = (*definitionLog)(nil)
	_ journal.Completer   = (*definitionLog)(nil)
)

func newDefinitionLog(s *Store, of scope) *definitionLog {
	l := &definitionLog{store: s, scope: of}
	l.completed = sync.NewCond(&l.mu)
	return l
}

// NewStorage implements [vhost.DefinitionLog].
func (l *definitionLog) NewStorage() *queue.Storage { return l.store.newStorage() }

// Write implements [definition.Log].
func (l *definitionLog) Write(defs []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commit(defs, nil)
}

// commit writes definitions that make the log space in voided unnecessary. The caller holds mu.
func (l *definitionLog) commit(defs []byte, voided []journal.Delta) {
	live := journal.Delta{Extent: l.store.definitions.Extent(), Bytes: int64(len(defs))}
	l.usage.add(live.Extent, live.Bytes)
	l.written++
	l.store.definitions.Commit(defs, append(voided, live), l)
}

// NeedsCompaction implements [definition.Log].
func (l *definitionLog) NeedsCompaction() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.usage.isBulky(l.store.minCompactBytes) || l.usage.reaches(l.store.reclaimUpTo.Load())
}

// Rewrite implements [definition.Log]. The last part says which numbers were given to queues, as definitions that said so are
// void then.
func (l *definitionLog) Rewrite(parts iter.Seq[[]byte]) {
	l.mu.Lock()
	voided := l.usage.reset()
	l.mu.Unlock()
	first := true
	for defs := range parts {
		l.writePart(part{first: first, definitions: defs}, nil)
		first = false
	}
	var numbers []byte
	if l.scope.kind != scopeGlobals {
		numbers = amqp.AppendTable(nil, numbersDefinition(l.scope.vhost, l.store.lastNumber.Load()))
	}
	l.writePart(part{first: first, last: true, definitions: numbers}, voided)
}

// writePart writes a part of a rewrite.
func (l *definitionLog) writePart(p part, voided []journal.Delta) {
	p.of = l.scope
	b := amqp.AppendTable(nil, p.definition())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commit(b, voided)
	if p.last {
		l.usage.compacted = l.usage.bytes
	}
}

// release makes the log space of all definitions unnecessary.
func (l *definitionLog) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.store.definitions.Commit(nil, l.usage.reset(), nil)
}

// WaitDurable implements [definition.Log].
func (l *definitionLog) WaitDurable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for upTo := l.written; l.durable < upTo; l.completed.Wait() {
		if l.err != nil {
			return l.err
		}
	}
	return nil
}

// Durable implements [journal.Completer]. Commits become durable in order.
func (l *definitionLog) Durable() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.durable++
	l.completed.Broadcast()
}

// Failed implements [journal.Completer].
func (l *definitionLog) Failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	l.completed.Broadcast()
}

// logUsage is how much of the log the definitions of one scope use.
type logUsage struct {
	extents   []journal.Delta // in order
	bytes     int64           // of all extents
	compacted int64           // bytes after the last rewrite
}

func (u *logUsage) add(extent uint32, bytes int64) {
	u.bytes += bytes
	if n := len(u.extents); n > 0 && u.extents[n-1].Extent == extent {
		u.extents[n-1].Bytes += bytes
		return
	}
	u.extents = append(u.extents, journal.Delta{Extent: extent, Bytes: bytes})
}

// reset sets u to zero, and returns the deltas that take its bytes off the live ones.
func (u *logUsage) reset() (voided []journal.Delta) {
	voided = u.extents
	for i := range voided {
		voided[i].Bytes = -voided[i].Bytes
	}
	*u = logUsage{}
	return voided
}

// isBulky reports whether the definitions use much more than their last rewrite did.
func (u *logUsage) isBulky(minBytes int64) bool { return u.bytes > minBytes && u.bytes > 4*u.compacted }

// reaches reports whether some definitions lie in the log up to an extent.
func (u *logUsage) reaches(upTo uint32) bool {
	return len(u.extents) > 0 && u.extents[0].Extent <= upTo
}

// reclaim has definitions in extents up to upTo rewritten, along with all others of the same scope. It does not wait.
func (s *Store) reclaim(upTo uint32) {
	s.reclaimUpTo.Store(upTo)
	if s.recovered.Load() && s.compacting.CompareAndSwap(false, true) {
		s.running.Go(s.compactDefinitions)
	}
}

func (s *Store) compactDefinitions() {
	defer s.compacting.Store(false)
	for _, v := range s.VHosts() {
		v.CompactDefinitions()
	}
	s.users.CompactDefinitions()
	s.globals.compactDefinitions()
}
