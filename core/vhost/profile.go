package vhost

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// profile is what follows from the arguments of a queue and the policies that apply to it. Queues that are alike in both
// share it: there may be a hundred thousand of them.
type profile struct {
	queue.Profile
	epoch        uint64 // of the vhost, when it was made
	deadLetterTo string // as the arguments say
	deadLetters  bool
}

// profileKey is what queues have in common that share a profile.
type profileKey struct {
	args     string // encoded
	policies policies.Applied
}

// maxProfiles and maxProfileKey bound what is remembered for queues to come.
const (
	maxProfiles   = 256
	maxProfileKey = 1 << 10 // bytes of encoded arguments
)

// profile returns the checked arguments of a declaration.
func (v *VHost) profile(d QueueDeclare, args hook.Args) (*profile, error) {
	epoch := v.epoch.Load()
	key := profileKey{encoded(d.Args), v.policies.Load().Match(policies.Subject{Name: d.Name, Type: queueType(args)})}
	if p := v.cachedProfile(key); p != nil {
		return p, nil
	}
	if err := v.checkArguments(d.Name, args); err != nil {
		return nil, err
	}
	if queueType(args) == typeStream {
		return nil, v.noStreams(d.Name)
	}
	p := v.newProfile(args, key.policies)
	p.epoch = epoch
	v.cacheProfile(key, p)
	return p, nil
}

func (v *VHost) noStreams(name string) error {
	return refuse(NotImplemented, "%s: queue type 'stream' is not offered, only 'classic' and 'quorum'", v.queueName(name))
}

// cachedProfile returns what is remembered for arguments, nil if nothing is.
func (v *VHost) cachedProfile(key profileKey) *profile {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.profiles[key]
}

func (v *VHost) cacheProfile(key profileKey, p *profile) {
	if len(key.args) > maxProfileKey {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if p.epoch != v.epoch.Load() {
		return
	}
	if len(v.profiles) >= maxProfiles {
		clear(v.profiles)
	}
	v.profiles[key] = p
}

// newProfile reads arguments that passed the checks, and the policies.
func (v *VHost) newProfile(args hook.Args, applied policies.Applied) *profile {
	p := &profile{epoch: v.epoch.Load()}
	p.Profile = queue.Profile{VHost: v.name, Args: args, Policies: applied, Kind: queueType(args), DeliveryLimit: -1}
	p.Settings = p.setting
	if p.Kind == queue.Quorum {
		p.DeliveryLimit = defaultDeliveryLimit
	}
	if limit, ok := p.intSetting("delivery-limit"); ok {
		p.DeliveryLimit = limit
	}
	priority, _ := args.Lookup(argMaxPriority)
	levels, _ := hook.Int(priority)
	p.Levels = int(levels)
	single, _ := args.Lookup(argSingleActive)
	p.SingleActive, _ = single.(bool)
	exchange, _ := args.Lookup(argDeadLetter)
	p.deadLetterTo, p.deadLetters = exchange.(string)
	p.Strategy = v.strategy(p)
	return p
}

// strategy is the name of the expiry strategy that policies and arguments choose, or the default. One that was there when
// it was chosen may be gone.
func (v *VHost) strategy(p *profile) string {
	chosen, _ := p.setting(settingStrategy)
	if name, ok := chosen.(string); ok && v.chain.Offers(name) {
		return name
	}
	return v.chain.DefaultStrategy()
}

// config describes a queue with these arguments.
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
