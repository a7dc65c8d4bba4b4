package metrics

import (
	"maps"
	"slices"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// reasonFamilies are the families that count removals from each queue.
type reasonFamilies struct{ expired, deadLettered, dropped, redriven, cancelled *Family }

func newReasonFamilies() reasonFamilies {
	return reasonFamilies{
		expired:      &Family{Name: "curfew_queue_messages_expired_total", Kind: Counter, Help: "Messages of the queue the time of which ran out"},
		deadLettered: &Family{Name: "curfew_queue_messages_dead_lettered_total", Kind: Counter, Help: "Messages that the queue gave up to be dead-lettered"},
		dropped:      &Family{Name: "curfew_queue_messages_dropped_total", Kind: Counter, Help: "Messages that the queue dropped"},
		redriven:     &Family{Name: "curfew_queue_messages_redriven_total", Kind: Counter, Help: "Messages of the queue that were moved on request"},
		cancelled:    &Family{Name: "curfew_queue_schedules_cancelled_total", Kind: Counter, Help: "Held messages of the queue that were dropped on request"},
	}
}

func (f *reasonFamilies) all() []*Family {
	return []*Family{f.expired, f.deadLettered, f.dropped, f.redriven, f.cancelled}
}

// add adds the series of a queue whose counts are not 0.
func (f *reasonFamilies) add(q *queueSample) {
	with := func(more ...string) *Labels {
		return label(append([]string{"vhost", q.config.VHost, "queue", q.config.Name, "strategy", q.config.Strategy}, more...)...)
	}
	if n := q.Expired(); n > 0 {
		f.expired.add(with(), float64(n))
	}
	if n := q.DeadLettered[hook.ReasonRedriven]; n > 0 {
		f.redriven.add(with(), float64(n))
	}
	if n := q.Dropped[hook.ReasonCancelled]; n > 0 {
		f.cancelled.add(with(), float64(n))
	}
	for r := hook.ReasonNone + 1; r < hook.Reasons; r++ {
		if telemetry.Moved(r) {
			continue
		}
		if n := q.DeadLettered[r]; n > 0 {
			f.deadLettered.add(with("reason", r.String()), float64(n))
		}
		if n := q.Dropped[r]; n > 0 {
			f.dropped.add(with("reason", r.String()), float64(n))
		}
	}
}

// maxVHosts bounds the vhosts that have series of their own. Others are counted together, without a name.
const maxVHosts = 1000

// removalTotals adds up removals from queues: by vhost, and together for vhosts that were created beyond the limit.
type removalTotals struct {
	named map[*vhost.VHost]struct{}
	last  map[*vhost.VHost]vhost.Stats // of the others
	rest  vhost.Stats                  // of the others, including deleted ones
}

func newRemovalTotals() removalTotals {
	return removalTotals{
		named: map[*vhost.VHost]struct{}{}, last: map[*vhost.VHost]vhost.Stats{}, rest: vhost.Stats{Removals: map[string]vhost.RemovalCounts{}},
	}
}

// read returns the counts of a vhost that has series of its own; named is false if it has none.
func (t *removalTotals) read(v *vhost.VHost) (s vhost.Stats, named bool) {
	s = v.Stats()
	if _, named = t.named[v]; named || len(t.named) < maxVHosts {
		t.named[v] = struct{}{}
		return s, true
	}
	last := t.last[v]
	t.rest.Refused += s.Refused - last.Refused
	t.rest.QueuesExpired += s.QueuesExpired - last.QueuesExpired
	for strategy, now := range s.Removals {
		before, sum := last.Removals[strategy], t.rest.Removals[strategy]
		for r := range now {
			for o := range now[r] {
				sum[r][o] += now[r][o] - before[r][o]
			}
		}
		t.rest.Removals[strategy] = sum
	}
	t.last[v] = s
	return vhost.Stats{}, false
}

// forgetOthers forgets all vhosts except these.
func (t *removalTotals) forgetOthers(all []*vhost.VHost) {
	if len(t.named)+len(t.last) == len(all) {
		return
	}
	deleted := func(v *vhost.VHost) bool { return !slices.Contains(all, v) }
	maps.DeleteFunc(t.named, func(v *vhost.VHost, _ struct{}) bool { return deleted(v) })
	maps.DeleteFunc(t.last, func(v *vhost.VHost, _ vhost.Stats) bool { return deleted(v) })
}

// removalFamilies are the families that count removals and releases in each vhost.
type removalFamilies struct{ expired, deadLettered, dropped, released, cancelled, redriven, refused, queues *Family }

// gatherRemovals adds the reasons for which messages and queues were removed.
func (c *Collector) gatherRemovals(b *builder) {
	f := removalFamilies{
		expired:      b.family(Counter, "curfew_messages_expired_total", "Messages the time of which ran out"),
		deadLettered: b.family(Counter, "curfew_messages_dead_lettered_total", "Messages that were dead-lettered and entered a queue"),
		dropped:      b.family(Counter, "curfew_messages_dropped_total", "Messages that were dropped, dead letters that entered no queue among them"),
		released:     b.family(Counter, "curfew_messages_released_total", "Held messages that were released, and are ready or entered a queue"),
		cancelled:    b.family(Counter, "curfew_schedules_cancelled_total", "Held messages that were dropped on request"),
		redriven:     b.family(Counter, "curfew_redriven_total", "Messages that were moved to another queue on request"),
		refused:      b.family(Counter, "curfew_messages_refused_total", "Messages that a queue did not take"),
		queues:       b.family(Counter, "curfew_queues_expired_total", "Queues that expired because they were unused"),
	}
	all := c.Store.VHosts()
	c.removals.forgetOthers(all)
	others := len(c.removals.rest.Removals) > 0
	for _, v := range all {
		if s, named := c.removals.read(v); named {
			f.add(v.Name(), &s)
		} else {
			others = true
		}
	}
	if others {
		f.add("", &c.removals.rest)
	}
}

func (f *removalFamilies) add(vhost string, s *vhost.Stats) {
	f.refused.add(label("vhost", vhost), float64(s.Refused))
	f.queues.add(label("vhost", vhost), float64(s.QueuesExpired))
	var sum vhostMoves
	for _, strategy := range slices.Sorted(maps.Keys(s.Removals)) {
		counts := s.Removals[strategy]
		f.addCounts(&counts, "vhost", vhost, "strategy", strategy)
		sum.add(&counts)
	}
	f.released.add(label("vhost", vhost, "outcome", telemetry.Ready.String()), float64(sum.ready))
	f.released.add(label("vhost", vhost, "outcome", telemetry.Routed.String()), float64(sum.routed))
	f.cancelled.add(label("vhost", vhost), float64(sum.cancelled))
	f.redriven.add(label("vhost", vhost), float64(sum.redriven))
}

// vhostMoves counts the messages that were released, cancelled and redriven in a vhost. Strategies are not involved.
type vhostMoves struct{ ready, routed, cancelled, redriven uint64 }

func (m *vhostMoves) add(counts *vhost.RemovalCounts) {
	m.ready += counts[hook.ReasonReleased][telemetry.Ready]
	m.routed += counts[hook.ReasonReleased][telemetry.Routed]
	m.redriven += counts[hook.ReasonRedriven][telemetry.Routed]
	for _, n := range counts[hook.ReasonCancelled] {
		m.cancelled += n
	}
}

func (f *removalFamilies) addCounts(counts *vhost.RemovalCounts, labels ...string) {
	var expired uint64
	for _, n := range counts[hook.ReasonExpired] {
		expired += n
	}
	f.expired.add(label(labels...), float64(expired))
	for r := hook.ReasonNone + 1; r < hook.Reasons; r++ {
		with := append(slices.Clip(labels), "reason", r.String())
		for o := range telemetry.Outcomes {
			switch n := float64(counts[r][o]); {
			case n == 0, o == telemetry.Ready, o == telemetry.Routed, r == hook.ReasonCancelled:
			case o == telemetry.DeadLettered:
				f.deadLettered.add(label(with...), n)
			default:
				f.dropped.add(label(append(with, "outcome", o.String())...), n)
			}
		}
	}
}

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
