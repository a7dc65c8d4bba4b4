package vhost

import (
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// profile is derived from a queue's arguments and policies. Queues with the same ones share a profile: there may be a hundred thousand of
// them.
type profile struct {
	queue.Profile
	epoch     uint64   // the policy table's, when the profile was made
	exchanges []string // exchanges that the arguments name, for plugins to publish to
	checked   bool     // the arguments were checked; arguments of restored queues are not
}

type profileKey struct {
	args     string // encoded
	policies policies.Applied
}

// maxProfiles and maxProfileKey bound the cache of profiles.
const (
	maxProfiles   = 256
	maxProfileKey = 1 << 10 // bytes of encoded arguments
)

// profileFor returns the profile for a queue. With check, it refuses invalid arguments.
func (ps *policyTable) profileFor(name string, table amqp.Table, args hook.Args, check bool) (*profile, error) {
	epoch := ps.epoch.Load()
	applied := ps.match(policies.Subject{Name: name, Type: queueType(args)})
	key := profileKey{string(amqp.AppendTable(nil, table)), applied}
	ps.mu.RLock()
	p := ps.profiles[key]
	ps.mu.RUnlock()
	if p != nil && (p.checked || !check) {
		return p, nil
	}
	if check {
		if err := ps.checkArguments(name, args); err != nil {
			return nil, err
		}
	}
	p = ps.newProfile(args, applied)
	p.epoch, p.checked = epoch, check
	ps.cacheProfile(key, p)
	return p, nil
}

func (ps *policyTable) cacheProfile(key profileKey, p *profile) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if len(key.args) > maxProfileKey || !ps.isCurrent(p) {
		return
	}
	if len(ps.profiles) >= maxProfiles {
		clear(ps.profiles)
	}
	ps.profiles[key] = p
}

// profileOf returns the profile that a durable queue would have if it were declared now. The default type of the vhost is in args already.
// It returns the errors of the declaration, but declares no queue.
func (ps *policyTable) profileOf(name string, args amqp.Table) (*queue.Profile, error) {
	declared := hookArgs(args)
	if err := ps.checkArguments(name, declared); err != nil {
		return nil, err
	}
	return &ps.newProfile(declared, ps.match(policies.Subject{Name: name, Type: queueType(declared)})).Profile, nil
}

// newProfile makes a profile from checked arguments and the policies that apply.
func (ps *policyTable) newProfile(args hook.Args, applied policies.Applied) *profile {
	p := &profile{epoch: ps.epoch.Load()}
	p.Profile = queue.Profile{VHost: ps.name, Args: args, Policies: applied, Kind: queueType(args), DeliveryLimit: -1}
	p.Settings = p.setting
	if p.Kind == queue.Quorum {
		p.DeliveryLimit = defaultDeliveryLimit
	}
	if setting, ok := p.setting("delivery-limit"); ok {
		if limit, ok := hook.Int(setting); ok {
			p.DeliveryLimit = limit
		}
	}
	if setting, ok := p.setting("delivery-lease"); ok {
		millis, _ := hook.Int(setting)
		p.DeliveryLease = time.Duration(min(max(millis, 0), hook.MaxMillis)) * time.Millisecond
	}
	priority, _ := args.Lookup(argMaxPriority)
	levels, _ := hook.Int(priority)
	p.Levels = int(levels)
	single, _ := args.Lookup(argSingleActive)
	p.SingleActive, _ = single.(bool)
	p.exchanges = ps.exchangesIn(args)
	p.Strategy = ps.strategy(p)
	return p
}

// strategy returns the name of the expiry strategy that policies and arguments choose, or of the default strategy if the chosen one no
// longer exists.
func (r *rules) strategy(p *profile) string {
	chosen, _ := p.setting(settingStrategy)
	if name, ok := chosen.(string); ok && r.chain.Offers(name) {
		return name
	}
	return r.chain.DefaultStrategy()
}

// setting returns the effective value of a setting. name is the setting's name in policies; the argument has the same name after "x-". The
// value combines both.
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

// config describes a queue with this profile.
func (p *profile) config(d QueueDeclare) *queue.Config {
	return &queue.Config{
		Profile: &p.Profile, Name: d.Name, Durable: d.Durable, Exclusive: d.Exclusive, AutoDelete: d.AutoDelete,
	}
}

func hookArgs(t amqp.Table) hook.Args {
	if len(t) == 0 {
		return nil
	}
	args := make(hook.Args, len(t))
	for i, f := range t {
		args[i] = hook.Arg{Name: f.Key, Value: f.Value}
	}
	return args
}
