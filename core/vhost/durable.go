package vhost

import (
	"fmt"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/policies"
)

// Keeper keeps what is durable of a vhost. Its methods may be called from any goroutine; only Wait waits for the disk.
type Keeper interface {
	// Place finds a new durable queue a number, and a place for its messages.
	Place() *queue.Record
	// Write adds definitions, all of them or none, to those that were written before. defs is the caller's again afterwards.
	Write(defs []byte)
	// Bulky reports whether so much was written that it is worth a Rewrite.
	Bulky() bool
	// Rewrite replaces all that was written of the vhost so far.
	Rewrite(defs []byte)
	// Wait returns when all that was written before is durable. Its error means that nobody knows whether it is.
	Wait() error
}

// A change of what is durable is written under the vhost's lock, in the order things happen, and awaited outside of it: the
// client's answer says that it is durable. Others may see it before; a queue they do not, as its messages would be confirmed
// while it might yet be lost.

// coming is a durable queue that will be there as soon as its definition is durable.
type coming struct {
	config *queue.Config
	over   chan struct{} // closed when the queue is in the table, or will not be
}

// note adds a definition to those of the change at hand. The caller holds mu.
func (v *VHost) note(def amqp.Table) { v.noted = amqp.AppendTable(v.noted, def) }

// unlock ends a change: what was noted is written, all at once.
func (v *VHost) unlock() {
	if len(v.noted) > 0 {
		if !v.gone {
			v.keeper.Write(v.noted)
		}
		v.noted = v.noted[:0]
	}
	v.mu.Unlock()
}

// await waits until a change of something durable is durable itself.
func (v *VHost) await(durable bool) error {
	if !durable || v.keeper == nil {
		return nil
	}
	v.Condense()
	if err := v.keeper.Wait(); err != nil {
		return v.unkept(err)
	}
	return nil
}

// keeps reports whether an exchange is written down.
func (v *VHost) keeps(x *exchange) bool { return v.keeper != nil && x.Durable }

// keepsBinding reports whether a binding is: both of its ends must be.
func (v *VHost) keepsBinding(x *exchange, to destination) bool {
	if to.exchange != nil {
		return v.keeps(x) && to.exchange.Durable
	}
	return v.keeps(x) && to.queue.Config().Record != nil
}

// addDurable writes a queue down and puts it into the table when that is durable. Without a queue and without an error
// somebody was faster.
func (v *VHost) addDurable(d QueueDeclare, p *profile) (*queue.Shell, error) {
	cfg := p.config(d)
	cfg.Record = v.keeper.Place()
	if err := cfg.Record.Journal.Err(); err != nil {
		return nil, stopped(&queue.StoppedError{VHost: v.name, Queue: d.Name, Shard: cfg.Record.Shard, Err: err})
	}
	c, err := v.announce(cfg, p)
	if c == nil {
		return nil, err
	}
	err = v.await(true)
	return v.arrive(c, err), err
}

// announce reserves the name of a queue that is coming. It returns nil, but not before that one is there, if the name is
// taken, and if the policies have changed since the profile was made.
func (v *VHost) announce(cfg *queue.Config, p *profile) (*coming, error) {
	v.mu.Lock()
	defer v.unlock()
	if !v.free(cfg.Name) || p.epoch != v.epoch.Load() {
		return nil, nil
	}
	if err := v.admits(cfg.Name); err != nil {
		return nil, err
	}
	c := &coming{config: cfg, over: make(chan struct{})}
	if v.coming == nil {
		v.coming = map[string]*coming{}
	}
	v.coming[cfg.Name] = c
	v.note(v.defineQueue(cfg))
	return c, nil
}

// arrive puts a queue that was coming into the table, unless it could not be made durable.
func (v *VHost) arrive(c *coming, err error) *queue.Shell {
	v.mu.Lock()
	defer v.unlock()
	defer close(c.over)
	delete(v.coming, c.config.Name)
	if err != nil || v.gone {
		return nil
	}
	cfg := c.config
	if applied := v.policies.Load().Match(subject(cfg)); applied != cfg.Policies {
		cfg = reconfigured(cfg, v.newProfile(cfg.Args, applied))
	}
	shell := queue.NewShell(cfg, v.chain, v, v.clock)
	v.enter(shell, 0)
	return shell
}

// free reports whether a queue may have that name. If one is coming by it, it waits until that is there; the caller holds
// mu, and holds it again when it returns.
func (v *VHost) free(name string) bool {
	if _, taken := v.queues[name]; taken {
		return false
	}
	c := v.coming[name]
	if c == nil {
		return true
	}
	v.mu.Unlock()
	<-c.over
	v.mu.Lock()
	return false
}

// Condense writes the definitions of everything there is, in place of all that was written so far, if that is worth it.
func (v *VHost) Condense() {
	if v.keeper == nil || !v.keeper.Bulky() {
		return
	}
	v.mu.Lock()
	defer v.unlock()
	if v.keeper.Bulky() && !v.gone { // nobody else did it meanwhile
		v.keeper.Rewrite(v.definitions())
	}
}

// Definitions returns the definitions of everything durable, as it is written.
func (v *VHost) Definitions() []byte {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.definitions()
}

// definitions is Definitions for a caller who holds mu.
func (v *VHost) definitions() []byte {
	b := amqp.AppendTable(nil, define(opVHost, v.name, v.metadata.fields()...))
	for _, x := range v.exchanges {
		if x.Durable && !isPredeclared(x.Name) {
			b = amqp.AppendTable(b, v.defineExchange(&x.Exchange))
		}
	}
	for _, e := range v.queues {
		if e.shell.Config().Record != nil {
			b = amqp.AppendTable(b, v.defineQueue(e.shell.Config()))
		}
	}
	for _, c := range v.coming {
		b = amqp.AppendTable(b, v.defineQueue(c.config))
	}
	for _, x := range v.exchanges {
		b = v.appendBindings(b, x)
	}
	return v.appendParameters(v.appendPolicies(b))
}

func (v *VHost) appendBindings(b []byte, x *exchange) []byte {
	if x.table == nil || !x.Durable {
		return b
	}
	for r := range x.table.All() {
		if v.keepsBinding(x, r.Destination) {
			b = amqp.AppendTable(b, v.defineBinding(opBind, bindingOf(x, r)))
		}
	}
	return b
}

// Restore makes what definitions say. Nobody else may use the vhost yet. place returns the place a queue has its messages
// in, by its number. The queues that are made are returned: a [queue.Restorer] is to fill and start them.
func (v *VHost) Restore(d *Definitions, place func(id uint64) (*queue.Record, error)) ([]*queue.Shell, error) {
	v.policies.Store(d.policies)
	v.metadata, v.parameters = d.metadata, d.parameters
	v.followLimits()
	for name, x := range d.exchanges {
		if v.exchanges[name] == nil {
			v.exchanges[name] = newExchange(x.Exchange)
		}
		v.exchanges[name].follow(d.policies)
	}
	shells := make([]*queue.Shell, 0, len(d.queues))
	owners := make(map[uint64]string, len(d.queues)) // of numbers
	for _, q := range d.queues {
		if other, taken := owners[q.id]; taken {
			return nil, fmt.Errorf("queues '%s' and '%s' have the same number, %d", other, q.name, q.id)
		}
		owners[q.id] = q.name
		r, err := place(q.id)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.queueName(q.name), err)
		}
		shells = append(shells, v.restoreQueue(q, r))
	}
	for name, x := range d.exchanges {
		v.restoreBindings(v.exchanges[name], x)
	}
	return shells, nil
}

// restoreQueue makes a queue that was declared before. Its arguments were checked then; a plugin that would not take them
// any more does not make it go away.
func (v *VHost) restoreQueue(q definedQueue, r *queue.Record) *queue.Shell {
	args := hookArgs(q.args)
	key := profileKey{encoded(q.args), v.policies.Load().Match(policies.Subject{Name: q.name, Type: queueType(args)})}
	p := v.recall(key)
	if p == nil {
		p = v.newProfile(args, key.policies)
		v.remember(key, p)
	}
	cfg := p.config(QueueDeclare{Name: q.name, Durable: true, AutoDelete: q.autoDelete})
	cfg.Record = r
	shell := queue.NewHeldShell(cfg, v.chain, v, v.clock)
	v.enter(shell, 0)
	return shell
}

func (v *VHost) restoreBindings(x *exchange, from *definedExchange) {
	if from.table == nil {
		return
	}
	for b := range from.table.All() {
		to := destination{exchange: v.exchanges[b.Destination.name]}
		if !b.Destination.exchange {
			to = destination{queue: v.queues[b.Destination.name].shell}
		}
		x.table.Add(b.Key, b.Args, to)
		v.link(x, to)
	}
}
