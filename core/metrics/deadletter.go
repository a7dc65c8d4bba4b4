package metrics

import (
	"slices"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// queueTypes are RabbitMQ's names for the types of queues.
var queueTypes = [queue.Types]string{queue.ClassicType: "rabbit_classic_queue", queue.QuorumType: "rabbit_quorum_queue"}

// buriedFamilies are the reasons for which RabbitMQ counts dead letters.
var buriedFamilies = [...]struct {
	reason     hook.Reason
	name, help string
}{
	{hook.ReasonDeliveryLimit, "delivery_limit", "due to delivery-limit exceeded"},
	{hook.ReasonExpired, "expired", "due to message TTL exceeded"},
	{hook.ReasonMaxLen, "maxlen", "due to overflow drop-head or reject-publish-dlx"},
	{hook.ReasonRejected, "rejected", "due to basic.reject or basic.nack"},
}

// deadLetters tells of what left queues, those that are gone included, as RabbitMQ does: by what was to become of it.
func (b *builder) deadLetters(t *vhostTotals) {
	b.family(Counter, "rabbitmq_global_messages_dead_lettered_confirmed_total", "Total number of messages dead-lettered and confirmed by target queues").
		add(label("queue_type", "rabbit_quorum_queue", "dead_letter_strategy", vhost.AtLeastOnce.String()), float64(t.arrived))
	for _, f := range buriedFamilies {
		family := b.family(Counter, "rabbitmq_global_messages_dead_lettered_"+f.name+"_total", "Total number of messages dead-lettered "+f.help)
		for kind, queueType := range queueTypes {
			for care := range vhost.DeadLetterStrategies {
				n := t.left[kind][care][f.reason]
				if n > 0 || usual(queue.Type(kind), care, f.reason) {
					family.add(label("queue_type", queueType, "dead_letter_strategy", care.String()), float64(n))
				}
			}
		}
	}
}

// usual reports whether RabbitMQ has a series, even for nothing.
func usual(kind queue.Type, care vhost.DeadLetterStrategy, reason hook.Reason) bool {
	classic := kind == queue.ClassicType
	switch {
	case classic:
		return care != vhost.AtLeastOnce && reason != hook.ReasonDeliveryLimit
	case care == vhost.AtLeastOnce:
		return slices.Contains([]hook.Reason{hook.ReasonDeliveryLimit, hook.ReasonExpired, hook.ReasonRejected}, reason)
	}
	return true
}
