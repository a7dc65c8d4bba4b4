package vhost

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/policies"
)

// ProfileOf returns the profile that a durable queue would have if it were declared now. It returns the errors of the declaration, but
// declares no queue.
func (v *VHost) ProfileOf(name string, args amqp.Table) (*queue.Profile, error) {
	d := QueueDeclare{Name: name, Durable: true, Args: args}
	v.applyDefaultType(&d)
	declared := hookArgs(d.Args)
	if err := v.checkArguments(name, declared); err != nil {
		return nil, err
	}
	applied := v.policies.Load().Match(policies.Subject{Name: name, Type: queueType(declared)})
	return &v.newProfile(declared, applied).Profile, nil
}

// LeadsTo returns the names of the queues to which a message that the broker publishes to an exchange would be routed now, and the outcome
// for a dead letter. If a plugin chooses anew for each message, it returns all queues that the plugin may choose; exchanges hold nothing,
// and filters are not asked. LeadsTo changes nothing.
func (v *VHost) LeadsTo(exchange string, m *parts.Message) (queues []string, outcome telemetry.Outcome) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x := v.exchanges[exchange]
	if x == nil {
		return nil, telemetry.NoExchange
	}
	m.Exchange = x.Name
	probe := routings.Get().(*routing)
	probe.vhost, probe.message, probe.probing = v, m, true
	found, err := probe.follow(x, nil)
	probe.release()
	for _, q := range found {
		if cfg := q.Config(); cfg.Schedule == nil {
			queues = append(queues, cfg.Name)
		}
	}
	if err != nil || len(found) == 0 {
		return nil, telemetry.Unroutable
	}
	return queues, telemetry.DeadLettered
}
