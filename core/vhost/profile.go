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
	epoch     uint64   // the vhost's, when the profile was made
	exchanges []string // exchanges that the arguments name, for plugins to publish to
	checked   bool     // the arguments were checked; arguments of restored queues are not
}

// profileKey identifies a profile.
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
func (v *VHost) profileFor(name string, table amqp.Table, args hook.Args, check bool) (*profile, error) {
	epoch := v.epoch.Load()
	applied := v.policies.Load().Match(policies.Subject{Name: name, Type: queueType(args)})
	key := profileKey{string(amqp.AppendTable(nil, table)), applied}
	v.mu.RLock()
	p := v.profiles[key]
	v.mu.RUnlock()
	if p != nil && (p.checked || !check) {
		return p, nil
	}
	if check {
		if err := v.checkArguments(name, args); err != nil {
			return nil, err
		}
	}
	p = v.newProfile(args, applied)
	p.epoch, p.checked = epoch, check
	v.cacheProfile(key, p)
	return p, nil
}

func (v *VHost) cacheProfile(key profileKey, p *profile) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(key.args) > maxProfileKey || p.epoch != v.epoch.Load() {
		return
	}
	if len(v.profiles) >= maxProfiles {
		clear(v.profiles)
	}
	v.profiles[key] = p
}

// newProfile makes a profile from checked arguments and the policies that apply.
func (v *VHost) newProfile(args hook.Args, applied policies.Applied) *profile {
	p := &profile{epoch: v.epoch.Load()}
	p.Profile = queue.Profile{VHost: v.name, Args: args, Policies: applied, Kind: queueType(args), DeliveryLimit: -1}
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
	p.exchanges = v.exchangesIn(args)
	p.Strategy = v.strategy(p)
	return p
}

// strategy returns the name of the expiry strategy that policies and arguments choose, or of the default strategy if the chosen one no
// longer exists.
func (v *VHost) strategy(p *profile) string {
	chosen, _ := p.setting(settingStrategy)
	if name, ok := chosen.(string); ok && v.chain.Offers(name) {
		return name
	}
	return v.chain.DefaultStrategy()
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
