package store

import (
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// scope identifies definitions that are rewritten together: those of a vhost, of the users, or of the global parameters.
type scope struct{ kind, vhost string }

const (
	scopeVHost   = "vhost"
	scopeUsers   = "users"
	scopeGlobals = "globals"
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

// definitionReplay replays the definitions of one scope.
type definitionReplay struct {
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
func (p *definitionReplay) apply(d *definition.Definition) {
	p.replayed = true
	if err := p.state.Apply(d); p.err == nil || resets(d.Op) {
		p.err = err
	}
}

// replayOf returns the replay of a scope, which is new if the scope is a vhost without definitions.
func (r *recovery) replayOf(of scope) *definitionReplay {
	p := r.replays[of]
	if p == nil {
		definitions := vhost.NewDefinitions(r.options.Rules)
		p = &definitionReplay{log: newDefinitionLog(r.store, of), state: definitions, vhost: definitions}
		r.replays[of] = p
	}
	return p
}

// replayErrors returns the failures that were not voided.
func (r *recovery) replayErrors() error {
	var all error
	for _, p := range r.replays {
		all = errors.Join(all, p.err)
	}
	return all
}

// replayDefinitionEntry replays an entry of the shard of definitions.
func (r *recovery) replayDefinitionEntry(extent uint32, at wlog.Index, entry []byte) error {
	r.progress.count(entry)
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

func (r *recovery) replay(extent uint32, d *definition.Definition) error {
	if d.Op == opRewrite {
		return r.replayPart(extent, d)
	}
	of := scopeOf(d)
	r.rewrites.insert(extent, of, d)
	if d.Op != opNumbers || r.replays[of] != nil { // else the vhost is deleted
		u := &r.replayOf(of).log.usage
		if resets(d.Op) {
			u.reset()
		}
		u.add(extent, int64(d.Size))
	}
	r.apply(d)
	return nil
}

// replayPart replays a part of a rewrite.
func (r *recovery) replayPart(extent uint32, d *definition.Definition) error {
	p, err := parsePart(d)
	if err != nil {
		return err
	}
	if current := r.replays[p.of]; current != nil {
		current.log.usage.add(extent, int64(d.Size))
	} else if p.of.kind != scopeVHost {
		return fmt.Errorf("definition %q: of %q, which is unknown", d.Op, p.of.kind)
	} // else the vhost does not exist: an unfinished rewrite does not create one, nor do the remains of a deleted one's last
	w := r.rewrites.add(extent, &p, d.Size)
	if w == nil {
		return nil
	}
	r.replayOf(p.of).log.usage = w.usage
	for d, err := range definition.Parse(w.definitions) {
		if err != nil {
			return fmt.Errorf("rewritten %s %q: %w", p.of.kind, p.of.vhost, err)
		}
		r.apply(d)
	}
	return nil
}

// apply replays what a definition says.
func (r *recovery) apply(d *definition.Definition) {
	switch of := scopeOf(d); {
	case d.Op == opNumbers:
		last, _ := d.Fields.Lookup(fieldLast)
		n, _ := last.(int64)
		r.given(uint64(n))
	case vhost.Deletes(d.Op):
		delete(r.replays, of)
	default:
		if id, ok := vhost.QueueID(d); ok {
			r.given(id >> shardBits)
		}
		r.replayOf(of).apply(d)
	}
}

// given records that a number was given to a queue.
func (r *recovery) given(n uint64) { r.store.lastNumber.Store(max(r.store.lastNumber.Load(), n)) }
