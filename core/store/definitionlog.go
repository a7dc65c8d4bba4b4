package store

import (
	"iter"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// definitionLog writes the definitions of one scope to the log of a shard, the home of the
// scope. It implements [definition.Log].
type definitionLog struct {
	scope scope

	mu    sync.Mutex // guards the fields below
	term  *term
	usage logUsage
}

var (
	_ vhost.DefinitionLog = (*definitionLog)(nil)
	_ journal.Completer   = (*term)(nil)
)

// newDefinitionLog returns the log of a scope whose home is a shard; nil means that another broker owns it.
func newDefinitionLog(home *shard, of scope) *definitionLog {
	l := &definitionLog{scope: of}
	l.move(home)
	return l
}

// move begins a new term. All writes of earlier terms must have been completed.
func (l *definitionLog) move(home *shard) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term != nil {
		l.term.end()
	}
	l.term = &term{home: home}
	l.term.completed = sync.NewCond(&l.term.mu)
	l.usage = logUsage{}
	if home == nil {
		l.term.end()
	}
}

// home returns the shard that the definitions are in; nil means that another broker owns it.
func (l *definitionLog) home() *shard {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term.home
}

// term is a time in which a scope has one home. It is the [journal.Completer] of the
// commits in that time.
type term struct {
	home *shard

	mu        sync.Mutex // guards the fields below
	completed *sync.Cond // signalled when durable or err changes
	written   uint64     // commits
	durable   uint64     // of them
	err       error      // why no more can be written
}

// end makes all writes of the term fail that were not completed.
func (t *term) end() {
	t.Failed(wlog.ErrNotOwner)
}

// begin counts a commit, unless none can be written.
func (t *term) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.home == nil {
		return false
	}
	t.written++
	return true
}

// wait returns when everything written before is durable.
func (t *term) wait() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for upTo := t.written; t.durable < upTo || t.home == nil; t.completed.Wait() {
		if t.err != nil {
			return t.err
		}
	}
	return nil
}

// Durable implements [journal.Completer]. Commits become durable in order.
func (t *term) Durable() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.durable++
	t.completed.Broadcast()
}

// Failed implements [journal.Completer].
func (t *term) Failed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
	t.completed.Broadcast()
}

// NewStorage implements [vhost.DefinitionLog].
func (l *definitionLog) NewStorage() *queue.Storage { return l.home().newStorage() }

func (l *definitionLog) Write(defs []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commit(defs, nil)
}

// commit writes definitions that give up the log space in voided. The caller holds mu.
func (l *definitionLog) commit(defs []byte, voided []journal.Delta) {
	if !l.term.begin() {
		return // WaitDurable says so
	}
	home := l.term.home
	live := journal.Delta{Extent: home.Extent(), Bytes: int64(len(defs))}
	l.usage.add(live.Extent, live.Bytes)
	home.Commit(defs, append(voided, live), l.term)
}

func (l *definitionLog) NeedsCompaction() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	home := l.term.home
	return home != nil && (l.usage.isBulky(home.store.minCompactBytes) || l.usage.reaches(home.upTo.Load()))
}

// Rewrite implements [definition.Log]. The last part has the highest number given to a
// queue, because the definitions that had it are void then.
func (l *definitionLog) Rewrite(parts iter.Seq[[]byte]) {
	l.mu.Lock()
	voided, home := l.usage.reset(), l.term.home
	l.mu.Unlock()
	first := true
	for defs := range parts {
		l.writePart(part{first: first, definitions: defs}, nil)
		first = false
	}
	var numbers []byte
	if home != nil && l.scope.kind != scopeGlobals {
		numbers = amqp.AppendTable(nil, numbersDefinition(l.scope.vhost, home.lastNumber.Load()))
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

// release gives up the log space of all definitions.
func (l *definitionLog) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if home := l.term.home; home != nil {
		home.Commit(nil, l.usage.reset(), nil)
	}
}

func (l *definitionLog) WaitDurable() error {
	l.mu.Lock()
	t := l.term
	l.mu.Unlock()
	if err := t.wait(); err != nil {
		return err
	}
	return t.home.sync()
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

// The definitions of a scope are rewritten in parts: so the scope is not locked all the
// time, and no log entry gets too large. A part is a definition itself:
//
//	op           rewrite
//	of           the scope: "vhost", "users" or "globals"
//	vhost        the vhost's name, "" for another scope
//	first, last  whether this is the first part, or the last
//	definitions  one after another
//
// The parts take effect together, with the last one. They void all definitions written
// before the first part; definitions written between two parts take effect between these
// parts.
const (
	opRewrite = "rewrite"

	fieldOf          = "of"
	fieldVHost       = "vhost"
	fieldFirst       = "first"
	fieldLastPart    = "last"
	fieldDefinitions = "definitions"
)

type part struct {
	of          scope
	first, last bool
	definitions []byte
}

func (p *part) definition() amqp.Table {
	return definition.New(opRewrite,
		amqp.Field{Key: fieldOf, Value: p.of.kind},
		amqp.Field{Key: fieldVHost, Value: p.of.vhost},
		amqp.Field{Key: fieldFirst, Value: p.first},
		amqp.Field{Key: fieldLastPart, Value: p.last},
		amqp.Field{Key: fieldDefinitions, Value: p.definitions},
	)
}

func parsePart(d *definition.Definition) (p part, err error) {
	definition.Read(d, fieldOf, &p.of.kind, &err)
	definition.Read(d, fieldVHost, &p.of.vhost, &err)
	definition.Read(d, fieldFirst, &p.first, &err)
	definition.Read(d, fieldLastPart, &p.last, &err)
	definition.Read(d, fieldDefinitions, &p.definitions, &err)
	return p, err
}

// rewriting is a rewrite whose last part was not replayed yet.
type rewriting struct {
	definitions []byte
	usage       logUsage
}

// rewrites are the rewrites that have begun, by scope.
type rewrites map[scope]*rewriting

// add adds a part. With the last part, add returns the whole rewrite, otherwise nil.
func (r rewrites) add(extent uint32, p *part, size int) *rewriting {
	if p.first { // an earlier rewrite was never finished
		r[p.of] = &rewriting{}
	}
	w := r[p.of]
	if w == nil {
		return nil // the first parts were trimmed from the log, so another rewrite follows
	}
	w.definitions = append(w.definitions, p.definitions...)
	w.usage.add(extent, int64(size))
	if !p.last {
		return nil
	}
	delete(r, p.of)
	return w
}

// insert adds a definition that was written between two parts, if its scope is being rewritten.
func (r rewrites) insert(extent uint32, of scope, d *definition.Definition) {
	if w := r[of]; w != nil {
		w.definitions = amqp.AppendTable(w.definitions, d.Fields)
		w.usage.add(extent, int64(d.Size))
	}
}
