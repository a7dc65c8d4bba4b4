package metrics

import (
	"maps"
	"slices"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// reasonFamilies are the families of what left a queue.
type reasonFamilies struct{ expired, deadLettered, dropped *Family }

func newReasonFamilies() reasonFamilies {
	return reasonFamilies{
		expired:      &Family{Name: "curfew_queue_messages_expired_total", Kind: Counter, Help: "Messages of the queue the time of which ran out"},
		deadLettered: &Family{Name: "curfew_queue_messages_dead_lettered_total", Kind: Counter, Help: "Messages that the queue gave up to be dead-lettered"},
		dropped:      &Family{Name: "curfew_queue_messages_dropped_total", Kind: Counter, Help: "Messages that the queue dropped"},
	}
}

func (f *reasonFamilies) all() []*Family { return []*Family{f.expired, f.deadLettered, f.dropped} }

// show adds the series of a queue, as far as there is something to count.
func (f *reasonFamilies) show(q *queueSample) {
	with := func(more ...string) *Labels {
		return label(append([]string{"vhost", q.config.VHost, "queue", q.config.Name, "strategy", q.config.Strategy}, more...)...)
	}
	if n := q.Dropped[hook.ReasonExpired] + q.DeadLettered[hook.ReasonExpired]; n > 0 {
		f.expired.add(with(), float64(n))
	}
	for r := hook.ReasonNone + 1; r < hook.Reasons; r++ {
		if n := q.DeadLettered[r]; n > 0 {
			f.deadLettered.add(with("reason", r.String()), float64(n))
		}
		if n := q.Dropped[r]; n > 0 {
			f.dropped.add(with("reason", r.String()), float64(n))
		}
	}
}

// maxVHosts is how many vhosts have series of their own. What happens in others is counted together, without the name.
const maxVHosts = 1000

// exits counts what left queues: by vhost and, for vhosts that came when there were too many, for all together.
type exits struct {
	named map[*vhost.VHost]struct{}
	last  map[*vhost.VHost]vhost.Stats // of the others
	rest  vhost.Stats                  // of the others, those that are gone included
}

func newExits() exits {
	return exits{
		named: map[*vhost.VHost]struct{}{}, last: map[*vhost.VHost]vhost.Stats{}, rest: vhost.Stats{Removals: map[string]vhost.RemovalCounts{}},
	}
}

// read returns what was counted in a vhost that has series of its own.
func (e *exits) read(v *vhost.VHost) (s vhost.Stats, named bool) {
	s = v.Stats()
	if _, named = e.named[v]; named || len(e.named) < maxVHosts {
		e.named[v] = struct{}{}
		return s, true
	}
	last := e.last[v]
	e.rest.Refused += s.Refused - last.Refused
	e.rest.QueuesExpired += s.QueuesExpired - last.QueuesExpired
	for strategy, is := range s.Removals {
		was, sum := last.Removals[strategy], e.rest.Removals[strategy]
		for r := range is {
			for o := range is[r] {
				sum[r][o] += is[r][o] - was[r][o]
			}
		}
		e.rest.Removals[strategy] = sum
	}
	e.last[v] = s
	return vhost.Stats{}, false
}

// keep forgets all vhosts but these.
func (e *exits) keep(all []*vhost.VHost) {
	gone := func(v *vhost.VHost) bool { return !slices.Contains(all, v) }
	if len(e.named)+len(e.last) == len(all) {
		return
	}
	maps.DeleteFunc(e.named, func(v *vhost.VHost, _ struct{}) bool { return gone(v) })
	maps.DeleteFunc(e.last, func(v *vhost.VHost, _ vhost.Stats) bool { return gone(v) })
}

// exitFamilies are the families of what left the queues of a vhost.
type exitFamilies struct{ expired, deadLettered, dropped, refused, queues *Family }

// gatherExpiry tells why messages and queues went.
func (c *Collector) gatherExpiry(b *builder) {
	f := exitFamilies{
		expired:      b.family(Counter, "curfew_messages_expired_total", "Messages the time of which ran out"),
		deadLettered: b.family(Counter, "curfew_messages_dead_lettered_total", "Messages that were dead-lettered and entered a queue"),
		dropped:      b.family(Counter, "curfew_messages_dropped_total", "Messages that were dropped, dead letters that entered no queue among them"),
		refused:      b.family(Counter, "curfew_messages_refused_total", "Messages that a queue did not take"),
		queues:       b.family(Counter, "curfew_queues_expired_total", "Queues that expired because nobody used them"),
	}
	all := c.Store.VHosts()
	c.left.keep(all)
	others := false
	for _, v := range all {
		s, named := c.left.read(v)
		if named {
			f.add(v.Name(), &s)
		}
		others = others || !named
	}
	if others || len(c.left.rest.Removals) > 0 {
		f.add("", &c.left.rest)
	}
}

func (f *exitFamilies) add(v string, s *vhost.Stats) {
	f.refused.add(label("vhost", v), float64(s.Refused))
	f.queues.add(label("vhost", v), float64(s.QueuesExpired))
	for _, strategy := range slices.Sorted(maps.Keys(s.Removals)) {
		left := s.Removals[strategy]
		f.addExits(&left, "vhost", v, "strategy", strategy)
	}
}

func (f *exitFamilies) addExits(e *vhost.RemovalCounts, place ...string) {
	var expired uint64
	for _, n := range e[hook.ReasonExpired] {
		expired += n
	}
	f.expired.add(label(place...), float64(expired))
	for r := hook.ReasonNone + 1; r < hook.Reasons; r++ {
		with := append(slices.Clip(place), "reason", r.String())
		for o := range telemetry.Outcomes {
			switch n := float64(e[r][o]); {
			case n == 0:
			case o == telemetry.DeadLettered:
				f.deadLettered.add(label(with...), n)
			default:
				f.dropped.add(label(append(with, "outcome", o.String())...), n)
			}
		}
	}
}
