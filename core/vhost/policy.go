package vhost

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/policies"
)

// policyTable has the policies in force, and the profiles of queues that follow from them.
type policyTable struct {
	*rules
	mu        *sync.RWMutex // guards changes of the fields below
	topology  *topology
	changes   *changes
	maker     *exchangeMaker
	log       *slog.Logger
	telemetry *telemetry.Recorder

	set      atomic.Pointer[policies.Set]
	epoch    atomic.Uint64 // changes when queues may get another profile: with policies and strategies
	profiles map[profileKey]*profile
	applying sync.Mutex // held while policies change, until all queues have adopted them
}

// Policies returns the policies in force. The set is never modified: a change replaces it.
func (ps *policyTable) Policies() *policies.Set { return ps.set.Load() }

// SetPolicy adds a policy, or replaces the policy of that name. An equal policy changes nothing. SetPolicy returns when the change is
// durable and has been adopted by all queues and exchanges that the policy applies to, or no longer applies to.
func (ps *policyTable) SetPolicy(kind policies.Kind, p *policies.Policy) (created bool, err error) {
	what := telemetry.Notice{Kind: telemetry.PolicyApplied, VHost: ps.name, Name: p.Name, Operator: kind == policies.Operator}
	err = ps.change(what, func(s *policies.Set) (*policies.Set, amqp.Table) {
		_, exists := s.Lookup(kind, p.Name)
		created = !exists
		return s.With(kind, p), ps.changes.definePolicy(kind, p)
	})
	return created, err
}

// ClearPolicy deletes a policy, and reports whether it existed.
func (ps *policyTable) ClearPolicy(kind policies.Kind, name string) (existed bool, err error) {
	what := telemetry.Notice{Kind: telemetry.PolicyApplied, VHost: ps.name, Name: name, Operator: kind == policies.Operator, Cleared: true}
	err = ps.change(what, func(s *policies.Set) (*policies.Set, amqp.Table) {
		s, existed = s.Without(kind, name)
		p := definedPolicy{kind: kind.String(), name: name}
		return s, ps.changes.define(opClearPolicy, p.key()...)
	})
	return existed, err
}

// change applies other policies, and reports it. change returns them with the definition of the change, or the present ones if
// nothing changes.
func (ps *policyTable) change(what telemetry.Notice, change func(*policies.Set) (*policies.Set, amqp.Table)) error {
	ps.applying.Lock()
	defer ps.applying.Unlock()
	changed := false
	// Additive is enough: applying excludes other changes of policies.
	err := ps.changes.make(fixedMode(additive), func() (apply func(), err error) {
		s, def := change(ps.set.Load())
		if s == ps.set.Load() {
			return nil, nil
		}
		ps.changes.addIfDurable(def)
		return func() {
			changed = true
			ps.set.Store(s)
			ps.invalidateProfiles()
			for x := range ps.topology.eachExchange() {
				ps.maker.applyPolicies(x, s)
			}
			ps.topology.invalidateRoutes()
		}, nil
	})
	if err != nil || !changed {
		return err
	}
	what.Queues = ps.apply()
	ps.telemetry.Notice(what)
	return nil
}

// match returns the policies that apply to a queue or an exchange.
func (ps *policyTable) match(s policies.Subject) policies.Applied { return ps.set.Load().Match(s) }

// restore puts policies in force before any queue exists.
func (ps *policyTable) restore(s *policies.Set) {
	ps.set.Store(s)
	ps.warnOfUnknownKeys()
}

// definers returns functions that append the definitions of the policies.
func (ps *policyTable) definers() (all []definitionAppender) {
	for _, kind := range policyKinds {
		for _, p := range ps.set.Load().List(kind) {
			all = append(all, func(b []byte) []byte { return amqp.AppendTable(b, ps.changes.definePolicy(kind, p)) })
		}
	}
	return all
}

// isCurrent reports whether a profile was made for the present policies and strategies. With mu held, it stays so.
func (ps *policyTable) isCurrent(p *profile) bool { return p.epoch == ps.epoch.Load() }

// invalidateProfiles stops new queues from using existing profiles. The caller holds mu.
func (ps *policyTable) invalidateProfiles() {
	ps.epoch.Add(1)
	clear(ps.profiles)
}

// StrategyChanged attaches plugins again to the queues with an expiry strategy that was added, removed or replaced. With recompute, their
// messages are restamped.
func (ps *policyTable) StrategyChanged(name string, recompute bool) {
	ps.applying.Lock()
	defer ps.applying.Unlock()
	ps.changes.exclusively(ps.invalidateProfiles)
	ps.reconfigure(recompute, func(cfg *queue.Config) (policies.Applied, bool) {
		chosen, _ := cfg.Settings(settingStrategy)
		return cfg.Policies, chosen == any(name) || cfg.Strategy == name
	})
}

// apply reconfigures every queue whose policies have changed, and returns the number of these queues. The caller holds applying.
func (ps *policyTable) apply() (queues int) {
	set := ps.set.Load()
	return ps.reconfigure(false, func(cfg *queue.Config) (policies.Applied, bool) {
		applied := set.Match(subject(cfg))
		return applied, applied != cfg.Policies
	})
}

// reconfigure gives queues new profiles and returns how many. changed says which queues get one, and under which policies.
func (ps *policyTable) reconfigure(recompute bool, changed func(*queue.Config) (policies.Applied, bool)) (queues int) {
	type like struct {
		*queue.Profile
		policies.Applied
	}
	profiles := map[like]*profile{} // queues that shared a profile share the new one
	for _, m := range ps.topology.Queues() {
		cfg := m.Config()
		applied, ok := changed(cfg)
		if !ok {
			continue
		}
		key := like{cfg.Profile, applied}
		if profiles[key] == nil {
			profiles[key] = ps.newProfile(cfg.Args, applied)
		}
		if m.Reconfigure(reconfigured(cfg, profiles[key]), ps.chain, recompute) == nil { // else the queue is deleted
			queues++
		}
	}
	return queues
}

// reconfigured returns the description of a queue with another profile.
func reconfigured(c *queue.Config, p *profile) *queue.Config {
	next := *c
	next.Profile = &p.Profile
	return &next
}

func subject(c *queue.Config) policies.Subject { return policies.Subject{Name: c.Name, Type: c.Kind} }

// applyPolicies applies the policy that sets the alternate exchange, if the arguments name none. The caller holds the vhost's mu.
func (x *exchange) applyPolicies(s *policies.Set) {
	x.policies = s.Match(policies.Subject{Name: x.Name, Type: policies.Exchange})
	arg, has := x.Args.Lookup(argAlternate)
	alternate, _ := x.policies.Setting(argAlternate, arg, has, policies.Exchange)
	x.alternate, x.hasAlternate = alternate.(string)
}

var policyKinds = []policies.Kind{policies.User, policies.Operator}

// maxWarned is the most policies, and the most keys of each, that the warnings of a start name.
const maxWarned = 10

// warnOfUnknownKeys logs the restored policies that set a key of a missing plugin. RabbitMQ keeps such policies, too.
func (ps *policyTable) warnOfUnknownKeys() {
	found := 0
	for _, kind := range policyKinds {
		for _, p := range ps.set.Load().List(kind) {
			keys := p.Unknown()
			if keys == nil {
				continue
			}
			if found++; found <= maxWarned {
				ps.log.Warn("a policy sets keys that no plugin in plugins.chain knows; they have no effect",
					"policy", p.Name, "operator", kind == policies.Operator, "keys", firstOf(keys))
			}
		}
	}
	if found > maxWarned {
		ps.log.Warn("more policies set keys that no plugin in plugins.chain knows", "policies", found-maxWarned)
	}
}

// firstOf lists the first of some keys, and cuts long ones.
func firstOf(keys []string) string {
	const longest = 256
	var b strings.Builder
	for i, key := range keys {
		if i == maxWarned || b.Len()+len(key) > maxWarned*longest {
			fmt.Fprintf(&b, " and %d more", len(keys)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(key)
	}
	return strings.TrimSpace(b.String())
}

// definedPolicy is a policy as its definition describes it.
type definedPolicy struct {
	kind, name string
	value      []byte
}

func (p *definedPolicy) key() []fieldRef {
	return []fieldRef{ref("kind", &p.kind), ref(fieldName, &p.name)}
}

func (p *definedPolicy) fields() []fieldRef { return append(p.key(), ref(fieldValue, &p.value)) }

func (d definer) definePolicy(kind policies.Kind, p *policies.Policy) amqp.Table {
	value, err := p.MarshalJSON()
	if err != nil {
		panic(fmt.Errorf("policy %q: %w", p.Name, err)) // it was read from JSON
	}
	defined := definedPolicy{kind.String(), p.Name, value}
	return d.define(opSetPolicy, defined.fields()...)
}

// policy applies a definition that sets or clears a policy.
func (d *Definitions) policy(def *definition.Definition) error {
	var p definedPolicy
	fields := p.fields()
	if def.Op == opClearPolicy {
		fields = p.key()
	}
	if err := read(def, fields...); err != nil {
		return err
	}
	i := slices.IndexFunc(policyKinds, func(k policies.Kind) bool { return k.String() == p.kind })
	if i < 0 {
		return fmt.Errorf("definition %q: the kind %q is unknown", def.Op, p.kind)
	}
	if def.Op == opClearPolicy {
		d.policies, _ = d.policies.Without(policyKinds[i], p.name)
		return nil
	}
	restored, err := d.rules.Restore(policyKinds[i], p.name, p.value)
	if err != nil {
		return fmt.Errorf("definition %q of %q: %w", def.Op, p.name, err)
	}
	d.policies = d.policies.With(policyKinds[i], restored)
	return nil
}
