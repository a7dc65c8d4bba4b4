package store

import (
	"log/slog"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// scope identifies definitions that are rewritten together: those of a vhost, of the users,
// or of the global parameters.
type scope struct{ kind, vhost string }

const (
	scopeVHost   = "vhost"
	scopeUsers   = "users"
	scopeGlobals = "globals"
	// scopeShard is the scope of definitions that belong to a shard of vhosts itself: the
	// numbers of queues whose vhosts are deleted.
	scopeShard = "shard"
)

// scopeOf returns the scope of a definition that is no part of a rewrite.
func scopeOf(d *definition.Definition) scope {
	switch {
	case isGlobalOp(d.Op):
		return scope{kind: scopeGlobals}
	case auth.IsUserOp(d.Op) || d.VHost == "":
		return scope{kind: scopeUsers} // in earlier versions this scope also had numbers of queues
	}
	return scope{scopeVHost, d.VHost}
}

// resets reports whether a definition with this op voids all earlier ones of its scope.
func resets(op string) bool {
	switch op {
	case opNoGlobals, opNoMembers, opNoPlacements, opSetModule, opDeleteModule:
		return true
	}
	return auth.Resets(op) || vhost.Resets(op)
}

// opNumbers is the definition of numbers that were given to queues: all up to "last".
const (
	opNumbers = "numbers"
	fieldLast = "last"
)

func numbersDefinition(vhost string, last uint64) amqp.Table {
	return definition.New(opNumbers, amqp.Field{Key: fieldVHost, Value: vhost}, amqp.Field{Key: fieldLast, Value: int64(last)})
}

// shardFold makes states of the definitions in the log of one shard.
type shardFold struct {
	fold
	home     *shard
	rules    *policies.Rules
	restorer *queue.Restorer // of the log's queues
}

func newShardFold(home *shard, rules *policies.Rules, restorer *queue.Restorer) *shardFold {
	f := &shardFold{home: home, rules: rules, restorer: restorer}
	f.fold = newFold(scopeOfShard, f.begin)
	f.given = home.numberGiven
	return f
}

// add adds a scope that is no vhost.
func (f *shardFold) add(log *definitionLog, state applier) *foldScope {
	s := &foldScope{state: state, log: log, usage: &log.usage}
	f.scopes[log.scope] = s
	return s
}

func (f *shardFold) begin(of scope) *foldScope {
	if of.kind != scopeVHost {
		return nil
	}
	definitions, log := vhost.NewDefinitions(f.rules, f.restorer), newDefinitionLog(f.home, of)
	return &foldScope{state: definitions, vhost: definitions, log: log, usage: &log.usage}
}

// scopeOfShard returns the scope of a definition in the log of a shard of vhosts.
func scopeOfShard(d *definition.Definition) (scope, error) {
	of := scopeOf(d)
	if of.kind == scopeUsers && d.Op == opNumbers {
		of.kind = scopeShard
	}
	return of, nil
}

// done returns the log space that the definitions use, or the failures that were not voided.
func (f *shardFold) done() (live []journal.Delta, failures error) {
	for _, s := range f.scopes {
		live = append(live, s.usage.extents...)
	}
	return live, f.err()
}

// progress counts replayed entries, messages, queues and bytes, and logs the counts once a second.
type progress struct {
	log             *slog.Logger
	clock           clock.Clock
	began, reported hook.Instant
	notify          func(shard uint32, done, total int64) // nil = no call

	entries, messages, queues int
	bytes                     int64
}

func (p *progress) count(entry []byte) {
	p.entries++
	p.bytes += int64(len(entry))
}

// add adds the counts of one shard.
func (p *progress) add(of *progress) {
	p.entries, p.messages, p.queues, p.bytes = p.entries+of.entries, p.messages+of.messages, p.queues+of.queues, p.bytes+of.bytes
}

func (p *progress) report(shard uint32, done, total int64) {
	now := p.clock()
	if now.Sub(p.reported) < time.Second {
		return
	}
	p.reported = now
	p.log.Info("recovering", "shard", shard, "bytes", done, "of", total, "seconds", now.Sub(p.began).Seconds())
	if p.notify != nil {
		p.notify(shard, done, total)
	}
}

// summarise logs the recovery, and records it as a span unless spans is nil.
func (p *progress) summarise(spans *telemetry.Spans) {
	if p.entries == 0 {
		return
	}
	ended := p.clock()
	p.log.Info("recovered", "queues", p.queues, "messages", p.messages, "entries", p.entries, "bytes", p.bytes,
		"seconds", ended.Sub(p.began).Seconds())
	if spans != nil {
		spans.Recovered(&telemetry.Recovery{
			Began: p.began, Ended: ended, Bytes: p.bytes, Entries: p.entries, Messages: p.messages, Queues: p.queues,
		})
	}
}
