package metrics

import (
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// queueSample is a queue at one moment.
type queueSample struct {
	queue.Stats
	config *queue.Config
	head   queue.Head
	census queue.DueSnapshot
}

// watcher looks at queues, one after another, and remembers the last.
type watcher struct {
	queueSample
	closely bool               // the message that is next is wanted, too
	look    func(*queue.Queue) // bound once: a closure for each of a hundred thousand queues would cost more than the looking
}

func newWatcher(survey *queue.DueSampler) *watcher {
	w := &watcher{}
	w.look = func(q *queue.Queue) {
		w.Stats = q.Stats()
		w.config = q.Config()
		if w.closely {
			w.head, _ = q.Head()
		}
		if survey != nil {
			w.census = survey.Of(q)
		}
	}
	return w
}

// at looks at a queue and reports whether it is there.
func (w *watcher) at(s *queue.Mailbox) bool {
	w.queueSample = queueSample{}
	return s.Look(w.look) == nil
}

// queueGauges are what each queue has at the moment. Their sums mean something.
var queueGauges = [...]struct {
	name, help string
	value      func(*queueSample) float64
}{
	{"rabbitmq_queue_messages_ready", "Messages ready to be delivered to consumers", func(q *queueSample) float64 { return float64(q.Ready) }},
	{"rabbitmq_queue_messages_unacked", "Messages delivered to consumers but not yet acknowledged", func(q *queueSample) float64 { return float64(q.Unacked) }},
	// Dead letters that wait for their arrival elsewhere are in no consumer's reach, and are counted here alone, as in the API.
	{"rabbitmq_queue_messages", "Sum of ready and unacknowledged messages - total queue depth", func(q *queueSample) float64 {
		return float64(q.Ready + q.Discarded + q.Unacked)
	}},
	{"rabbitmq_queue_messages_ready_bytes", "Size in bytes of ready messages", func(q *queueSample) float64 { return float64(q.ReadyBytes) }},
	{"rabbitmq_queue_consumers", "Consumers on a queue", func(q *queueSample) float64 { return float64(q.Consumers) }},
}

// queueCounters are what each queue has counted since it is there. The first is there for queues that are not shown, too.
var queueCounters = [...]struct {
	name, help string
	value      func(*queueSample) uint64
}{
	{"rabbitmq_queue_messages_published_total", "Total number of messages published to queues", func(q *queueSample) uint64 { return q.FromClients() }},
	{
		"rabbitmq_queue_messages_delivered_ack_total", "Total number of messages delivered from queues to be acknowledged",
		func(q *queueSample) uint64 { return q.Delivered },
	},
	{
		"rabbitmq_queue_messages_delivered_total", "Total number of messages delivered from queues and not to be acknowledged",
		func(q *queueSample) uint64 { return q.DeliveredNoAck },
	},
	{"rabbitmq_queue_messages_redelivered_total", "Total number of messages delivered from queues again", func(q *queueSample) uint64 { return q.Redelivered }},
	{"rabbitmq_queue_messages_acked_total", "Total number of messages of queues that were acknowledged", func(q *queueSample) uint64 { return q.Acked }},
}

// queueExtras are what some queues have.
var queueExtras = [...]struct {
	name, help string
	kind       Kind
	value      func(*queueSample) (v float64, ok bool)
}{
	{"curfew_queue_next_deadline_timestamp_seconds", "When the queue acts on its next deadline", Gauge, func(q *queueSample) (v float64, ok bool) {
		return seconds(q.NextDeadline), q.NextDeadline != 0
	}},
	{"rabbitmq_queue_head_message_timestamp", "Timestamp of the first message in the queue, if any", Gauge, func(q *queueSample) (v float64, ok bool) {
		return float64(q.head.Timestamp), q.head.Timestamp != 0
	}},
	{"curfew_queue_dead_letters_received_total", "Dead letters that came to the queue", Counter, func(q *queueSample) (v float64, ok bool) {
		return float64(q.DeadLetters), q.DeadLetters > 0
	}},
}

// nobody is the labels of what queues have together that are not shown: as no labels for Prometheus, but of the same names.
var nobody = label("vhost", "", "queue", "")

// queueFamilies are the families of queues while they are filled.
type queueFamilies struct {
	gauges   [len(queueGauges)]*Family
	counters [len(queueCounters)]*Family
	extras   [len(queueExtras)]*Family
	reasons  reasonFamilies

	rest     [len(queueGauges)]float64
	resting  int                // queues that rest is of
	due      queue.DueHistogram // deadlines of messages
	leases   queue.DueHistogram
	earliest hook.Instant // deadline
}

func newQueueFamilies() *queueFamilies {
	f := &queueFamilies{}
	for i, g := range queueGauges {
		f.gauges[i] = &Family{Name: g.name, Help: g.help}
	}
	for i, c := range queueCounters {
		f.counters[i] = &Family{Name: c.name, Help: c.help, Kind: Counter}
	}
	for i, e := range queueExtras {
		f.extras[i] = &Family{Name: e.name, Help: e.help, Kind: e.kind}
	}
	f.reasons = newReasonFamilies()
	return f
}

// show adds the series of a queue.
func (f *queueFamilies) show(l *Labels, q *queueSample) {
	for i := range queueGauges {
		f.gauges[i].add(l, queueGauges[i].value(q))
	}
	for i := range queueCounters {
		f.counters[i].add(l, float64(queueCounters[i].value(q)))
	}
	for i := range queueExtras {
		if v, ok := queueExtras[i].value(q); ok {
			f.extras[i].add(l, v)
		}
	}
	f.reasons.show(q)
}

// hide adds a queue to those that have no series of their own.
func (f *queueFamilies) hide(q *queueSample) {
	f.resting++
	for i := range queueGauges {
		f.rest[i] += queueGauges[i].value(q)
	}
}

// survey adds what is known of deadlines and leases of a queue.
func (f *queueFamilies) survey(now hook.Instant, q *queueSample) {
	f.due.Merge(&q.census.DueHistogram)
	f.leases.Add(now, q.LeaseExpires, 1)
	if q.NextDeadline != 0 && (f.earliest == 0 || q.NextDeadline < f.earliest) {
		f.earliest = q.NextDeadline
	}
}

// gatherQueues tells of queues.
func (c *Collector) gatherQueues(b *builder, now hook.Instant) {
	shells := c.shells()
	many := c.choose(shells)
	f, w, there := newQueueFamilies(), newWatcher(c.survey), 0
	for _, s := range shells {
		l := c.queues.labels(s) // before see, which is about the next look
		w.closely = l != nil
		if !w.at(s) {
			continue
		}
		there++
		f.survey(now, &w.queueSample)
		if l != nil {
			f.show(l, &w.queueSample)
		} else {
			f.hide(&w.queueSample)
		}
		if many {
			c.queues.see(s, &w.Stats)
		}
	}
	if many {
		c.queues.choose()
	}
	clear(shells)
	b.gauge("rabbitmq_queues", "Queues available", float64(there))
	f.into(b, &c.queues)
}

// choose sees to it that it is known which queues are shown. It reports whether others may be next time.
func (c *Collector) choose(shells []*queue.Mailbox) (many bool) {
	p := &c.queues
	switch {
	case p.limit == 0:
	case !p.many(len(shells)):
		p.showAll(shells)
	case len(p.shown) == 0:
		w := newWatcher(nil)
		for _, s := range shells {
			if w.at(s) {
				p.see(s, &w.Stats)
			}
		}
		p.choose()
	}
	return p.many(len(shells))
}

// shells lists all queues, in memory that is used again.
func (c *Collector) shells() []*queue.Mailbox {
	all := c.queues.shells[:0]
	for _, v := range c.Store.VHosts() {
		all = append(all, v.Mailboxes()...)
	}
	c.queues.shells = all
	return all
}

// into hands the families over.
func (f *queueFamilies) into(b *builder, p *seriesSelector) {
	own := p.limit > 0
	for i, g := range f.gauges {
		switch {
		case !own || len(g.Points) == 0:
			g.add(nil, f.rest[i])
		case f.resting > 0:
			g.add(nobody, f.rest[i])
		}
		b.families = append(b.families, g)
	}
	if own {
		if f.resting > 0 {
			f.counters[0].add(nobody, float64(p.rest))
		}
		b.families = append(b.families, f.counters[:]...)
		b.families = append(b.families, f.extras[:]...)
		b.families = append(b.families, f.reasons.all()...)
	}
	b.horizon("curfew_messages_due", "Ready messages by the time to their deadlines, each in the first it fits", &f.due)
	b.horizon("curfew_queue_leases", "Unused queues by the time to their expiry, each in the first it fits", &f.leases)
	next := b.family(Gauge, "curfew_next_deadline_timestamp_seconds", "When the next deadline of any queue is acted on")
	if f.earliest != 0 {
		next.add(nil, seconds(f.earliest))
	}
}

// withins are the labels of horizons.
var withins = [...]*Labels{
	label("within", "1s"), label("within", "10s"), label("within", "1m"), label("within", "10m"), label("within", "1h"), label("within", "later"),
}

func (b *builder) horizon(name, help string, h *queue.DueHistogram) {
	f := b.family(Gauge, name, help)
	for i, n := range h.Due {
		f.add(withins[i], float64(n))
	}
}

// A horizon has as many parts as there are labels for them.
var _ = [1]struct{}{}[len(withins)-len(queue.DueBounds)-1]
