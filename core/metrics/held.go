package metrics

import (
	"cmp"
	"slices"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

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

// gatherSchedules counts the messages that exchanges hold, with a sampler. The exchanges that hold most have series, as many as queues may have.
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
