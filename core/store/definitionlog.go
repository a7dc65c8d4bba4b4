package store

import (
	"iter"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
)

// definitionLog writes the definitions of one vhost, of the users or of the global parameters to the shard of definitions. It is a [journal.Completer] for all it commits.
type definitionLog struct {
	store   *Store
	scope   scope
	numbers bool // what is rewritten says which numbers were given to queues

	mu      sync.Mutex // guards what follows
	settled *sync.Cond // signalled when durable or err changed
	written uint64     // commits
	durable uint64     // of them
	err     error      // of the shard
	tally   logUsage
}

// logUsage is what the definitions of a vhost take in the log.
type logUsage struct {
	uses  []journal.Delta
	bytes int64
	least int64 // what they took when they were last rewritten
}

func (t *logUsage) add(extent uint32, bytes int64) {
	t.bytes += bytes
	if n := len(t.uses); n > 0 && t.uses[n-1].Extent == extent {
		t.uses[n-1].Bytes += bytes
		return
	}
	t.uses = append(t.uses, journal.Delta{Extent: extent, Bytes: bytes})
}

// recall adds what was found in the log, forgetting everything before it if that is void.
func (t *logUsage) recall(extent uint32, bytes int, anew bool) {
	if anew {
		t.reset()
	}
	t.add(extent, int64(bytes))
}

// reset forgets everything, and returns what is to be said of it to the journal.
func (t *logUsage) reset() (gone []journal.Delta) {
	gone = t.uses
	for i := range gone {
		gone[i].Bytes = -gone[i].Bytes
	}
	*t = logUsage{}
	return gone
}

func (t *logUsage) bulky(worthwhile int64) bool { return t.bytes > worthwhile && t.bytes > 4*t.least }

func newKeeper(s *Store, of scope) *definitionLog {
	k := &definitionLog{store: s, scope: of, numbers: of.kind != scopeGlobals}
	k.settled = sync.NewCond(&k.mu)
	return k
}

var (
	_ vhost.DefinitionLog = (*definitionLog)(nil)
	_ auth.DefinitionLog  = (*definitionLog)(nil)
	_ journal.Completer   = (*definitionLog)(nil)
)

// NewStorage implements [vhost.DefinitionLog].
func (k *definitionLog) NewStorage() *queue.Storage { return k.store.place() }

// Write implements [vhost.DefinitionLog].
func (k *definitionLog) Write(defs []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	meta := k.store.meta
	use := journal.Delta{Extent: meta.Extent(), Bytes: int64(len(defs))}
	k.tally.add(use.Extent, use.Bytes)
	k.written++
	meta.Commit(defs, []journal.Delta{use}, k)
}

// NeedsCompaction implements [vhost.DefinitionLog].
func (k *definitionLog) NeedsCompaction() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tally.bulky(k.store.worthwhile) || k.tally.stale(k.store.stale.Load())
}

// Rewrite implements [vhost.DefinitionLog].
func (k *definitionLog) Rewrite(parts iter.Seq[[]byte]) {
	before := k.begin()
	first := true
	for defs := range parts {
		k.writePart(part{first: first}, defs, nil)
		first = false
	}
	var defs []byte
	if k.numbers {
		defs = amqp.AppendTable(nil, numbersDefinition(k.scope.vhost, k.store.numbers.Load()))
	}
	k.writePart(part{first: first, last: true}, defs, before)
}

// begin forgets what was written so far, and returns what is to be said of that to the journal once it was replaced.
func (k *definitionLog) begin() (before []journal.Delta) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tally.reset()
}

// writePart writes a part of a rewrite. With the last one what was written before is not needed any more.
func (k *definitionLog) writePart(p part, defs []byte, before []journal.Delta) {
	p.of, p.definitions = k.scope, defs
	b := amqp.AppendTable(nil, p.definition())
	k.mu.Lock()
	defer k.mu.Unlock()
	meta := k.store.meta
	use := journal.Delta{Extent: meta.Extent(), Bytes: int64(len(b))}
	k.tally.add(use.Extent, use.Bytes)
	if p.last {
		k.tally.least = k.tally.bytes
	}
	k.written++
	meta.Commit(b, append(before, use), k)
}

// release lets the log forget what was written.
func (k *definitionLog) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.store.meta.Commit(nil, k.tally.reset(), nil)
}

// WaitDurable implements [vhost.DefinitionLog].
func (k *definitionLog) WaitDurable() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for upTo := k.written; k.durable < upTo; k.settled.Wait() {
		if k.err != nil {
			return k.err
		}
	}
	return nil
}

// Durable implements [journal.Completer]: commits become durable in order.
func (k *definitionLog) Durable() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.durable++
	k.settled.Broadcast()
}

// Failed implements [journal.Completer].
func (k *definitionLog) Failed(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
	k.settled.Broadcast()
}
