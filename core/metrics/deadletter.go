package metrics

import (
	"slices"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// queueTypes are RabbitMQ's names for the types of queues.
var queueTypes = [queue.Types]string{queue.ClassicType: "rabbit_classic_queue", queue.QuorumType: "rabbit_quorum_queue"}

// deadLetterFamilies lists the reasons for which RabbitMQ counts dead letters.
var deadLetterFamilies = [...]struct {
	reason     hook.Reason
	name, help string
}{
	{hook.ReasonDeliveryLimit, "delivery_limit", "due to delivery-limit exceeded"},
	{hook.ReasonExpired, "expired", "due to message TTL exceeded"},
	{hook.ReasonMaxLen, "maxlen", "due to overflow drop-head or reject-publish-dlx"},
	{hook.ReasonRejected, "rejected", "due to basic.reject or basic.nack"},
}

// deadLetters adds removals by dead-letter strategy, including those from deleted queues. As in RabbitMQ, dropped messages count for the
// strategy disabled.
func (b *builder) deadLetters(t *vhostTotals) {
	confirmed := b.family(Counter, "rabbitmq_global_messages_dead_lettered_confirmed_total", "Total number of messages dead-lettered and confirmed by target queues")
	for kind, queueType := range queueTypes {
		if n := t.arrived[kind]; n > 0 || queue.Type(kind) == queue.QuorumType { // RabbitMQ always has this one
			confirmed.add(label("queue_type", queueType, "dead_letter_strategy", vhost.AtLeastOnce.String()), float64(n))
		}
	}
	for _, f := range deadLetterFamilies {
		family := b.family(Counter, "rabbitmq_global_messages_dead_lettered_"+f.name+"_total", "Total number of messages dead-lettered "+f.help)
		for kind, queueType := range queueTypes {
			for strategy := range vhost.DeadLetterStrategies {
				n := t.deadLetters[kind][strategy][f.reason]
				if n > 0 || usual(queue.Type(kind), strategy, f.reason) {
					family.add(label("queue_type", queueType, "dead_letter_strategy", strategy.String()), float64(n))
				}
			}
		}
	}
}

// usual reports whether RabbitMQ has a series even if its count is 0.
func usual(kind queue.Type, strategy vhost.DeadLetterStrategy, reason hook.Reason) bool {
	classic := kind == queue.ClassicType
	switch {
	case classic:
		return strategy != vhost.AtLeastOnce && reason != hook.ReasonDeliveryLimit
	case strategy == vhost.AtLeastOnce:
		return slices.Contains([]hook.Reason{hook.ReasonDeliveryLimit, hook.ReasonExpired, hook.ReasonRejected}, reason)
	}
	return true
}
