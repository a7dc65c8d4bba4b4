package vhost

import (
	"fmt"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Policies returns the policies in force. They do not change: a later change makes
// others.
func (v *VHost) Policies() *policies.Set { return v.policies.Load() }

// SetPolicy adds a policy, or replaces the one of that name, which matters at once
// to the queues and exchanges it applies to or no longer does. One that is the same
// changes nothing. It returns when the change is durable and, after that, all of them
// have taken it on.
func (v *VHost) SetPolicy(kind policies.Kind, p *policies.Policy) (created bool, err error) {
	what := telemetry.Notice{Kind: telemetry.PolicyApplied, VHost: v.name, Name: p.Name, Operator: kind == policies.Operator}
	err = v.changePolicies(what, func(s *policies.Set) (*policies.Set, amqp.Table) {
		_, exists := s.Lookup(kind, p.Name)
		created = !exists
		return s.With(kind, p), v.definePolicy(kind, p)
	})
	return created, err
}

// ClearPolicy deletes a policy, and reports whether there was one of that name.
func (v *VHost) ClearPolicy(kind policies.Kind, name string) (existed bool, err error) {
	what := telemetry.Notice{Kind: telemetry.PolicyApplied, VHost: v.name, Name: name, Operator: kind == policies.Operator, Cleared: true}
	err = v.changePolicies(what, func(s *policies.Set) (*policies.Set, amqp.Table) {
		var left *policies.Set
		left, existed = s.Without(kind, name)
		return left, define(opClearPolicy, v.name, amqp.Field{Key: fieldKind, Value: kind.String()}, amqp.Field{Key: fieldName, Value: name})
	})
	return existed, err
}

// changePolicies puts other policies in force, and tells what was done.
func (v *VHost) changePolicies(what telemetry.Notice, change func(*policies.Set) (*policies.Set, amqp.Table)) error {
	v.applying.Lock()
	defer v.applying.Unlock()
	changed, err := v.replacePolicies(change)
	if err != nil || !changed {
		return err
	}
	what.Queues = v.applyPolicies()
	v.telemetry.Notice(what)
	return nil
}

// replacePolicies reports whether anything changed. Queues that are declared from
// now on have the new policies.
func (v *VHost) replacePolicies(change func(*policies.Set) (*policies.Set, amqp.Table)) (changed bool, err error) {
	h := additive // and alone among changes of policies: the caller holds applying
	err = v.change(fixedMode(h), func() (apply func() error, err error) {
		s, def := change(v.policies.Load())
		if s == v.policies.Load() {
			return nil, nil
		}
		v.logIfDurable(def)
		return func() error {
			changed = true
			v.policies.Store(s)
			v.invalidateProfiles()
			for _, x := range v.exchanges {
				x.applyPolicies(s)
			}
			v.invalidateRoutes()
			return nil
		}, nil
	})
	return changed, err
}

// invalidateProfiles makes every profile one that no new queue may have. The caller holds mu.
func (v *VHost) invalidateProfiles() {
	v.epoch.Add(1)
	clear(v.profiles)
}

// StrategyChanged has the queues that chose an expiry strategy attached anew: it came, went, or became another. With
// recompute, what they hold gets the deadlines that it has for them now.
func (v *VHost) StrategyChanged(name string, recompute bool) {
	v.applying.Lock()
	defer v.applying.Unlock()
	v.mu.Lock()
	v.invalidateProfiles()
	v.mu.Unlock()
	for _, shell := range v.Queues() {
		cfg := shell.Config()
		if chosen, _ := cfg.Settings(settingStrategy); chosen != any(name) && cfg.Strategy != name {
			continue
		}
		_ = shell.Reconfigure(reconfigured(cfg, v.newProfile(cfg.Args, cfg.Policies)), v.chain, recompute) // an error means that it is gone
	}
}

// applyPolicies has every queue that other policies apply to take them on, and
// returns how many those are. The caller holds applying.
func (v *VHost) applyPolicies() (queues int) {
	set := v.policies.Load()
	type like struct {
		*queue.Profile
		policies.Applied
	}
	profiles := map[like]*profile{} // queues that were alike are alike again
	for _, shell := range v.Queues() {
		cfg := shell.Config()
		applied := set.Match(subject(cfg))
		if applied == cfg.Policies {
			continue
		}
		p := profiles[like{cfg.Profile, applied}]
		if p == nil {
			p = v.newProfile(cfg.Args, applied)
			profiles[like{cfg.Profile, applied}] = p
		}
		if shell.Reconfigure(reconfigured(cfg, p), v.chain, false) == nil { // else it is gone
			queues++
		}
	}
	return queues
}

// reconfigured is the description of a queue under other policies.
func reconfigured(c *queue.Config, p *profile) *queue.Config {
	next := *c
	next.Profile = &p.Profile
	return &next
}

func subject(c *queue.Config) policies.Subject { return policies.Subject{Name: c.Name, Type: c.Kind} }

// applyPolicies takes on the policy that applies to an exchange: its alternate exchange, if
// the arguments name none. The caller holds the vhost's mu.
func (x *exchange) applyPolicies(s *policies.Set) {
	x.policies = s.Match(policies.Subject{Name: x.Name, Type: policies.Exchange})
	arg, has := x.Args.Lookup(argAlternate)
	alternate, _ := x.policies.Setting(argAlternate, arg, has, policies.Exchange)
	x.alternate, x.hasAlternate = alternate.(string)
}

// setting is the effective value of a setting, named as policies name it: what the
// policies and the argument of that name with "x-" before it make together.
func (p *profile) setting(name string) (any, bool) {
	arg, has := p.argument(name)
	if p.Policies == (policies.Applied{}) {
		return arg, has
	}
	return p.Policies.Setting(name, arg, has, p.Kind)
}

func (p *profile) argument(setting string) (any, bool) {
	for i := range p.Args {
		if a := p.Args[i].Name; len(a) == len(setting)+2 && a[:2] == "x-" && a[2:] == setting {
			return p.Args[i].Value, true
		}
	}
	return nil, false
}

// intSetting reads an integer that was validated as one.
func (p *profile) intSetting(name string) (n int64, ok bool) {
	v, ok := p.setting(name)
	if !ok {
		return 0, false
	}
	return hook.Int(v)
}

func (v *VHost) definePolicy(kind policies.Kind, p *policies.Policy) amqp.Table {
	value, err := p.MarshalJSON()
	if err != nil {
		panic(fmt.Errorf("policy %q: %w", p.Name, err)) // it was read from JSON
	}
	return define(opSetPolicy, v.name, amqp.Field{Key: fieldKind, Value: kind.String()},
		amqp.Field{Key: fieldName, Value: p.Name}, amqp.Field{Key: fieldValue, Value: value})
}

// policyKinds are the kinds by the names they are written with.
var policyKinds = map[string]policies.Kind{
	policies.User.String():     policies.User,
	policies.Operator.String(): policies.Operator,
}

// policy takes in the definition of a policy that was set or cleared.
func (d *Definitions) policy(def *definition.Definition) error {
	var kind, name string
	var value []byte
	var err error
	definition.Read(def, fieldKind, &kind, &err)
	definition.Read(def, fieldName, &name, &err)
	if def.Op == opSetPolicy {
		definition.Read(def, fieldValue, &value, &err)
	}
	if err != nil {
		return err
	}
	k, ok := policyKinds[kind]
	if !ok {
		return fmt.Errorf("definition %q: the kind %q is unknown", def.Op, kind)
	}
	if def.Op == opClearPolicy {
		d.policies, _ = d.policies.Without(k, name)
		return nil
	}
	p, err := d.rules.Restore(k, name, value)
	if err != nil {
		return fmt.Errorf("definition %q of %q: %w", def.Op, name, err)
	}
	d.policies = d.policies.With(k, p)
	return nil
}
