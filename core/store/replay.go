package store

import (
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/policies"
)

// scope identifies definitions that are rewritten together: those of a vhost, of the users, or of the global parameters.
type scope struct{ kind, vhost string }

const (
	scopeVHost   = "vhost"
	scopeUsers   = "users"
	scopeGlobals = "globals"
	// scopeShard is what belongs to the shard of a cluster: the numbers of queues whose vhosts are deleted.
	scopeShard = "shard"
)

// scopeOf returns the scope of a definition that is no part of a rewrite.
func scopeOf(d *definition.Definition) scope {
	switch {
	case isGlobalOp(d.Op):
		return scope{kind: scopeGlobals}
	case auth.IsUserOp(d.Op) || d.VHost == "":
		return scope{kind: scopeUsers} // theirs also record the numbers of queues
	}
	return scope{scopeVHost, d.VHost}
}

// resets reports whether a definition with this op voids all earlier ones of its scope.
func resets(op string) bool { return auth.Resets(op) || op == opNoGlobals || vhost.Resets(op) }

// opNumbers is the definition of numbers that were given to queues: all up to "last".
const (
	opNumbers = "numbers"
	fieldLast = "last"
)

func numbersDefinition(vhost string, last uint64) amqp.Table {
	return definition.New(opNumbers, amqp.Field{Key: fieldVHost, Value: vhost}, amqp.Field{Key: fieldLast, Value: int64(last)})
}

// scopeReplay replays the definitions of one scope.
type scopeReplay struct {
	log   *definitionLog
	state interface {
		Apply(d *definition.Definition) error
	}
	vhost    *vhost.Definitions // state, if the scope is a vhost
	replayed bool               // there were definitions
	err      error              // of the first definition that failed; nil = none failed, or all that did are void
}

// apply replays a definition. A failure is no error yet: the definition may build on one that was trimmed from the log. Then
// one that voids both follows.
func (p *scopeReplay) apply(d *definition.Definition) {
	p.replayed = true
	if err := p.state.Apply(d); p.err == nil || resets(d.Op) {
		p.err = err
	}
}

// definitionsReplay replays the definitions in the log of one shard.
type definitionsReplay struct {
	home     *shard
	rules    *policies.Rules
	scopes   map[scope]*scopeReplay
	restorer *queue.Restorer // of the same log's queues; nil = there are no messages in it
	rewrites rewrites
}

func newDefinitionsReplay(home *shard, rules *policies.Rules) *definitionsReplay {
	return &definitionsReplay{home: home, rules: rules, scopes: map[scope]*scopeReplay{}, rewrites: rewrites{}}
}

// add adds a scope that is no vhost.
func (r *definitionsReplay) add(log *definitionLog, state interface {
	Apply(d *definition.Definition) error
},
) *scopeReplay {
	p := &scopeReplay{log: log, state: state}
	r.scopes[log.scope] = p
	return p
}

// of returns the replay of a scope, which is new if the scope is a vhost without definitions.
func (r *definitionsReplay) of(of scope) *scopeReplay {
	p := r.scopes[of]
	if p == nil {
		definitions := vhost.NewDefinitions(r.rules, r.restorer)
		p = &scopeReplay{log: newDefinitionLog(r.home, of), state: definitions, vhost: definitions}
		r.scopes[of] = p
	}
	return p
}

// vhosts yields the vhosts that there are.
func (r *definitionsReplay) vhosts(yield func(name string, p *scopeReplay) bool) {
	for of, p := range r.scopes {
		if p.vhost != nil && !yield(of.vhost, p) {
			return
		}
	}
}

// done returns the log space that the definitions use, or the failures that were not voided.
func (r *definitionsReplay) done() (live []journal.Delta, failures error) {
	for _, p := range r.scopes {
		failures = errors.Join(failures, p.err)
		if p.vhost != nil {
			failures = errors.Join(failures, p.vhost.Err())
		}
		live = append(live, p.log.usage.extents...)
	}
	return live, failures
}

// entry replays an entry that holds only definitions.
func (r *definitionsReplay) entry(extent uint32, at wlog.Index, entry []byte) error {
	for d, err := range definition.Parse(entry) {
		if err == nil {
			err = r.replay(extent, d)
		}
		if err != nil {
			return fmt.Errorf("entry %#x: %w", at, err)
		}
	}
	return nil
}

func (r *definitionsReplay) replay(extent uint32, d *definition.Definition) error {
	if d.Op == opRewrite {
		return r.replayPart(extent, d)
	}
	of, err := r.scopeOf(d)
	if err != nil {
		return err
	}
	r.rewrites.insert(extent, of, d)
	if d.Op != opNumbers || r.scopes[of] != nil { // else the vhost is deleted
		u := &r.of(of).log.usage
		if resets(d.Op) {
			u.reset()
		}
		u.add(extent, int64(d.Size))
	}
	return r.apply(d)
}

// scopeOf is scopeOf for the log that is replayed. No definition can be of a scope that the log does not have, unless it is a vhost.
func (r *definitionsReplay) scopeOf(d *definition.Definition) (scope, error) {
	of := scopeOf(d)
	if of.kind == scopeUsers && d.Op == opNumbers && r.home.tenure != nil {
		of.kind = scopeShard
	}
	if of.kind != scopeVHost && r.scopes[of] == nil {
		return of, fmt.Errorf("definition %q: of %q, which are not in this shard", d.Op, of.kind)
	}
	return of, nil
}

// replayPart replays a part of a rewrite.
func (r *definitionsReplay) replayPart(extent uint32, d *definition.Definition) error {
	p, err := parsePart(d)
	if err != nil {
		return err
	}
	if current := r.scopes[p.of]; current != nil {
		current.log.usage.add(extent, int64(d.Size))
	} else if p.of.kind != scopeVHost {
		return fmt.Errorf("definition %q: of %q, which is unknown", d.Op, p.of.kind)
	} // else the vhost does not exist: an unfinished rewrite does not create one, nor do the remains of a deleted one's last
	w := r.rewrites.add(extent, &p, d.Size)
	if w == nil {
		return nil
	}
	r.of(p.of).log.usage = w.usage
	for d, err := range definition.Parse(w.definitions) {
		if err != nil {
			return fmt.Errorf("rewritten %s %q: %w", p.of.kind, p.of.vhost, err)
		}
		if err := r.apply(d); err != nil {
			return err
		}
	}
	return nil
}

// apply replays what a definition says.
func (r *definitionsReplay) apply(d *definition.Definition) error {
	of, err := r.scopeOf(d)
	if err != nil {
		return err
	}
	switch {
	case d.Op == opNumbers:
		last, _ := d.Fields.Lookup(fieldLast)
		n, _ := last.(int64)
		r.home.numberGiven(uint64(n))
	case vhost.Deletes(d.Op):
		if p := r.scopes[of]; p != nil {
			p.apply(d) // frees what was restored of its queues
		}
		delete(r.scopes, of)
	default:
		if id, ok := vhost.QueueID(d); ok {
			r.home.numberGiven(id >> shardBits)
		}
		r.of(of).apply(d)
	}
	return nil
}
