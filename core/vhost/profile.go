package vhost

import (
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// profile is what follows from the arguments of a queue. Queues declared with the same ones share it: there may be a
// hundred thousand of them.
type profile struct {
	queue.Profile
	deadLetterTo string
	deadLetters  bool
}

// maxProfiles and maxProfileKey bound what is remembered for queues to come.
const (
	maxProfiles   = 256
	maxProfileKey = 1 << 10 // bytes of encoded arguments
)

// profile returns the checked arguments of a declaration.
func (v *VHost) profile(d QueueDeclare, args hook.Args) (*profile, error) {
	key := encoded(d.Args)
	if p := v.recall(key); p != nil {
		return p, nil
	}
	if err := v.checkArguments(d.Name, args); err != nil {
		return nil, err
	}
	if queueType(args) == typeStream {
		return nil, refuse(NotImplemented, "%s: queue type 'stream' is not offered, only 'classic' and 'quorum'", v.queueName(d.Name))
	}
	p := v.newProfile(args)
	v.remember(key, p)
	return p, nil
}

// recall returns what is remembered for arguments, nil if nothing is.
func (v *VHost) recall(key string) *profile {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.profiles[key]
}

func (v *VHost) remember(key string, p *profile) {
	if len(key) > maxProfileKey {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.profiles) >= maxProfiles {
		clear(v.profiles)
	}
	v.profiles[key] = p
}

// newProfile reads arguments that passed the checks.
func (v *VHost) newProfile(args hook.Args) *profile {
	p := &profile{Profile: queue.Profile{VHost: v.name, Args: args, Kind: queueType(args), DeliveryLimit: -1}}
	p.Settings = p.setting
	if p.Kind == queue.Quorum {
		p.DeliveryLimit = defaultDeliveryLimit
	}
	if limit, ok := args.Lookup(argDeliveryLimit); ok {
		p.DeliveryLimit, _ = hook.Int(limit)
	}
	priority, _ := args.Lookup(argMaxPriority)
	levels, _ := hook.Int(priority)
	p.Levels = int(levels)
	single, _ := args.Lookup(argSingleActive)
	p.SingleActive, _ = single.(bool)
	exchange, _ := args.Lookup(argDeadLetter)
	p.deadLetterTo, p.deadLetters = exchange.(string)
	p.Strategy = v.strategy(args)
	return p
}

// strategy is the name of the expiry strategy that the arguments choose, or the default.
func (v *VHost) strategy(args hook.Args) string {
	chosen, _ := args.Lookup(argStrategy)
	if name, ok := chosen.(string); ok && slices.Contains(v.chain.Strategies(), name) {
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

// setting is the effective value of a setting, named as policies name it: an argument's name without its "x-".
func (p *profile) setting(name string) (any, bool) {
	for i := range p.Args {
		if a := p.Args[i].Name; len(a) == len(name)+2 && a[:2] == "x-" && a[2:] == name {
			return p.Args[i].Value, true
		}
	}
	return nil, false
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
