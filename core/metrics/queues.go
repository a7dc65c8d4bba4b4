package metrics

import (
	"cmp"
	"runtime"
	"slices"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// queueSample is a queue at one moment.
type queueSample struct {
	queue.Stats
	config *queue.Config
	head   queue.Head
}

// sampler takes samples of queues, and keeps the last one. Its functions are bound once: a closure for each of a hundred thousand
// queues would cost more than the samples.
type sampler struct {
	queueSample
	due      queue.DueSurvey // of the queue, if withDue
	withHead bool            // the message at the head is sampled, too
	withDue  bool            // deadlines are counted
	counted  bool            // all of them were counted
	look     func(*queue.Queue)
	count    func(*queue.Queue)
}

func newSampler() *sampler {
	s := &sampler{}
	s.count = func(q *queue.Queue) { s.counted = s.due.Next(q) }
	s.look = func(q *queue.Queue) {
		s.Stats = q.Stats()
		s.config = q.Config()
		if s.withHead {
			s.head, _ = q.Head()
		}
		if s.withDue {
			s.count(q)
		}
	}
	return s
}

// sample takes a sample of a queue, and reports whether the queue exists.
func (s *sampler) sample(m *queue.Mailbox) bool {
	s.queueSample = queueSample{}
	return m.Look(s.look) == nil
}

// sampleDue is sample; it also counts when the queue's messages are due and released, relative to now.
func (s *sampler) sampleDue(now hook.Instant, m *queue.Mailbox) bool {
	s.queueSample = queueSample{}
	s.due.Reset(now)
	s.withDue, s.counted = true, false
	exists := m.Look(s.look) == nil
	for exists && !s.counted && m.Look(s.count) == nil {
		runtime.Gosched() // goroutines that wait for the queue come before the next part
	}
	return exists
}

// presence says which queues appear in a family.
type presence uint8

const (
	summed     presence = iota // the queues that have series, and the sum of all others
	always                     // the queues that have series
	unlessZero                 // the queues that have series and a value other than 0
)

// Messages published to queues are counted even if no queue has series.
const (
	queuePublished     = "rabbitmq_queue_messages_published_total"
	queuePublishedHelp = "Total number of messages published to queues"
)

// queueFamilies are the families of the queues' values and counts, except those by reason.
var queueFamilies = [...]struct {
	name, help string
	kind       Kind
	presence   presence
	value      func(*queueSample) float64
}{
	{
		"rabbitmq_queue_messages_ready", "Messages ready to be delivered to consumers", Gauge, summed,
		func(q *queueSample) float64 { return float64(q.Ready) },
	},
	{
		"rabbitmq_queue_messages_unacked", "Messages delivered to consumers but not yet acknowledged", Gauge, summed,
		func(q *queueSample) float64 { return float64(q.Unacked) },
	},
	{ // Dead letters that wait for a confirm count only here, as in the API: no consumer gets them.
		"rabbitmq_queue_messages", "Sum of ready, held and unacknowledged messages - total queue depth", Gauge, summed,
		func(q *queueSample) float64 { return float64(q.Ready + q.Discarded + q.Unacked + q.Held) },
	},
	{
		"rabbitmq_queue_messages_ready_bytes", "Size in bytes of ready messages", Gauge, summed,
		func(q *queueSample) float64 { return float64(q.ReadyBytes) },
	},
	{"rabbitmq_queue_consumers", "Consumers on a queue", Gauge, summed, func(q *queueSample) float64 { return float64(q.Consumers) }},
	{queuePublished, queuePublishedHelp, Counter, always, func(q *queueSample) float64 { return float64(q.FromClients()) }},
	{
		"rabbitmq_queue_messages_delivered_ack_total", "Total number of messages delivered from queues to be acknowledged", Counter, always,
		func(q *queueSample) float64 { return float64(q.Delivered) },
	},
	{
		"rabbitmq_queue_messages_delivered_total", "Total number of messages delivered from queues and not to be acknowledged", Counter, always,
		func(q *queueSample) float64 { return float64(q.DeliveredNoAck) },
	},
	{
		"rabbitmq_queue_messages_redelivered_total", "Total number of messages delivered from queues again", Counter, always,
		func(q *queueSample) float64 { return float64(q.Redelivered) },
	},
	{
		"rabbitmq_queue_messages_acked_total", "Total number of messages of queues that were acknowledged", Counter, always,
		func(q *queueSample) float64 { return float64(q.Acked) },
	},
	{
		"curfew_queue_messages_held", "Messages of the queue that are not delivered before a time", Gauge, unlessZero,
		func(q *queueSample) float64 { return float64(q.Held) },
	},
	{
		"curfew_queue_next_release_timestamp_seconds", "When the queue releases its next held message", Gauge, unlessZero,
		func(q *queueSample) float64 { return seconds(q.NextRelease) },
	},
	{
		"curfew_queue_next_deadline_timestamp_seconds", "When the queue acts on its next deadline", Gauge, unlessZero,
		func(q *queueSample) float64 { return seconds(q.NextDeadline) },
	},
	{
		"rabbitmq_queue_head_message_timestamp", "Timestamp of the first message in the queue, if any", Gauge, unlessZero,
		func(q *queueSample) float64 { return float64(q.head.Timestamp) },
	},
	{
		"curfew_queue_delivery_leases_ended_total", "Deliveries of the queue that were not settled by the end of their lease", Counter, unlessZero,
		func(q *queueSample) float64 { return float64(q.LeasesEnded) },
	},
	{
		"curfew_queue_dead_letters_received_total", "Dead letters that came to the queue", Counter, unlessZero,
		func(q *queueSample) float64 { return float64(q.DeadLetters) },
	},
}

// noQueue labels the sum over the queues without series. To Prometheus empty labels are no
// labels, but the names are the same as for other queues.
var noQueue = label("vhost", "", "queue", "")

// queueCollection is used while the series of queues are collected.
type queueCollection struct {
	families [len(queueFamilies)]*Family
	reasons  reasonFamilies

	rest     [len(queueFamilies)]float64 // sums of queues without series
	hidden   int                         // number of these queues
	due      queue.DueHistogram          // deadlines of messages
	held     heldMessages
	leases   queue.DueHistogram
	earliest hook.Instant // deadline
}

func newQueueCollection() *queueCollection {
	c := &queueCollection{reasons: newReasonFamilies()}
	for i, f := range queueFamilies {
		c.families[i] = &Family{Name: f.name, Help: f.help, Kind: f.kind}
	}
	return c
}

// add adds the queue that was sampled: as series if there are labels for them, otherwise to the sums.
func (c *queueCollection) add(l *Labels, s *sampler) {
	q, now := &s.queueSample, s.due.Now()
	c.due.Never += s.due.Never
	if s.due.Due.Earliest != 0 { // most queues have no deadlines
		due := s.due.Due.Histogram()
		c.due.Merge(&due)
	}
	if q.Held > 0 {
		held := s.due.Held.Histogram()
		c.held.add(telemetry.OfQueues, q.Held, &held)
	}
	c.leases.Add(now, q.LeaseExpires, 1)
	if q.NextDeadline != 0 && (c.earliest == 0 || q.NextDeadline < c.earliest) {
		c.earliest = q.NextDeadline
	}
	if l == nil {
		c.hidden++
	}
	for i := range queueFamilies {
		f := &queueFamilies[i]
		switch {
		case l == nil && f.presence != summed:
		case l == nil:
			c.rest[i] += f.value(q)
		default:
			if v := f.value(q); v != 0 || f.presence != unlessZero {
				c.families[i].add(l, v)
			}
		}
	}
	if l != nil {
		c.reasons.add(q)
	}
}

// gatherQueues adds the families of queues.
func (c *Collector) gatherQueues(b *builder, now hook.Instant) {
	mailboxes := c.mailboxes()
	tooMany := c.selectSeries(mailboxes)
	all, s, count := newQueueCollection(), newSampler(), 0
	for _, m := range mailboxes {
		l := c.selector.labels(m) // before see, which prepares the next collection
		s.withHead = l != nil
		if !s.sampleDue(now, m) {
			continue
		}
		count++
		all.add(l, s)
		if tooMany {
			c.selector.see(m, &s.Stats)
		}
	}
	if tooMany {
		c.selector.choose()
	}
	clear(mailboxes)
	b.gauge("rabbitmq_queues", "Queues available", float64(count))
	c.gatherSchedules(b, now, s, &all.held)
	b.queues(all, &c.selector)
}

// selectSeries selects the queues that have series in this collection, unless the previous collection did. It reports whether there are too
// many queues for all of them to have series.
func (c *Collector) selectSeries(mailboxes []*queue.Mailbox) (tooMany bool) {
	p := &c.selector
	tooMany = p.tooMany(len(mailboxes))
	switch {
	case p.limit == 0:
	case !tooMany:
		p.showAll(mailboxes)
	case len(p.shown) == 0:
		s := newSampler()
		for _, m := range mailboxes {
			if s.sample(m) {
				p.see(m, &s.Stats)
			}
		}
		p.choose()
	}
	return tooMany
}

// mailboxes lists all queues, in memory that the next collection reuses.
func (c *Collector) mailboxes() []*queue.Mailbox {
	all := c.selector.mailboxes[:0]
	for _, v := range c.Store.VHosts() {
		all = append(all, v.Mailboxes()...)
	}
	c.selector.mailboxes = all
	return all
}

// queues adds the families that were collected from queues.
func (b *builder) queues(c *queueCollection, p *seriesSelector) {
	for i, f := range c.families {
		switch summing := queueFamilies[i].presence == summed; {
		case summing && (p.limit == 0 || len(f.Points) == 0):
			f.add(nil, c.rest[i])
		case p.limit == 0:
			continue
		case summing && c.hidden > 0:
			f.add(noQueue, c.rest[i])
		case f.Name == queuePublished && c.hidden > 0:
			f.add(noQueue, float64(p.rest))
		}
		b.families = append(b.families, f)
	}
	if p.limit > 0 {
		b.families = append(b.families, c.reasons.all()...)
	}
	b.due("curfew_messages_due", "Ready messages by the time left until their deadlines; each message is in one range", &c.due)
	b.held(&c.held)
	b.due("curfew_queue_leases", "Unused queues by the time left until they expire; each queue is in one range", &c.leases)
	next := b.family(Gauge, "curfew_next_deadline_timestamp_seconds", "When the next deadline of any queue is acted on")
	if c.earliest != 0 {
		next.add(nil, seconds(c.earliest))
	}
}

// dueLabels are the labels of the parts of a DueHistogram after overdue. The ranges do not overlap.
var dueLabels = [len(queue.DueHistogram{}.Due)]*Labels{
	label("due_in", "0s-1s"), label("due_in", "1s-10s"), label("due_in", "10s-1m"), label("due_in", "1m-10m"), label("due_in", "10m-1h"),
	label("due_in", "1h-inf"),
}

// overdue labels messages that are due already.
var overdue = label("due_in", "overdue")

func (b *builder) due(name, help string, h *queue.DueHistogram) {
	f := b.family(Gauge, name, help)
	f.add(overdue, float64(h.Overdue))
	for i, n := range h.Due {
		if i == 0 {
			n -= h.Overdue
		}
		f.add(dueLabels[i], float64(n))
	}
}

// heldMessages counts held messages, in queues and in exchanges.
type heldMessages struct {
	inQueues, inExchanges int
	due                   queue.DueHistogram
}

// add adds the held messages of a queue or an exchange, and their release times.
func (h *heldMessages) add(in string, held int, due *queue.DueHistogram) {
	if in == telemetry.OfExchanges {
		h.inExchanges += held
	} else {
		h.inQueues += held
	}
	h.due.Merge(due)
}

// gatherSchedules counts the messages that exchanges hold, with a sampler. The exchanges
// that hold most have series, as many as queues may have.
func (c *Collector) gatherSchedules(b *builder, now hook.Instant, by *sampler, h *heldMessages) {
	by.withHead = false
	var all []scheduleSample
	for _, v := range c.Store.VHosts() {
		for _, m := range v.Schedules() {
			if !by.sampleDue(now, m) {
				continue
			}
			s := scheduleSample{config: m.Config(), held: by.Held, due: by.due.Held.Histogram()}
			h.add(telemetry.OfExchanges, s.held, &s.due)
			if s.held > 0 {
				all = append(all, s)
			}
		}
	}
	slices.SortFunc(all, func(x, y scheduleSample) int {
		return cmp.Or(y.held-x.held, cmp.Compare(x.config.VHost, y.config.VHost), cmp.Compare(x.config.Name, y.config.Name))
	})
	held := b.family(Gauge, "curfew_exchange_messages_held", "Messages that the exchange holds")
	next := b.family(Gauge, "curfew_exchange_next_release_timestamp_seconds", "When the exchange releases its next held message")
	for i := range all[:min(len(all), c.Queues)] {
		s := &all[i]
		l := label("vhost", s.config.VHost, "exchange", s.config.Name)
		held.add(l, float64(s.held))
		next.add(l, seconds(s.due.Earliest))
	}
}

// scheduleSample describes the messages that an exchange holds at one moment.
type scheduleSample struct {
	config *queue.Config
	held   int
	due    queue.DueHistogram
}

// held adds the families of held messages.
func (b *builder) held(h *heldMessages) {
	all := b.family(Gauge, "curfew_messages_held", "Messages that are not delivered before a time, by what holds them")
	all.add(label("held_by", telemetry.OfQueues), float64(h.inQueues))
	all.add(label("held_by", telemetry.OfExchanges), float64(h.inExchanges))
	b.due("curfew_messages_held_due", "Held messages by the time left until their release; each message is in one range", &h.due)
	next := b.family(Gauge, "curfew_next_release_timestamp_seconds", "When the next held message of any queue or exchange is released")
	if h.due.Earliest != 0 {
		next.add(nil, seconds(h.due.Earliest))
	}
}
