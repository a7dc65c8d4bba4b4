package session

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/queue"
)

// Counters counts what clients did on channels.
type Counters struct {
	Published   uint64
	Routed      uint64 // queues that they were routed to
	Returned    uint64 // of them: mandatory and unroutable
	Dropped     uint64 // of them: unroutable without being mandatory
	Confirmable uint64 // of them: to be answered
	Confirmed   uint64 // of these: answered, with basic.ack or basic.nack

	Deliveries [queue.Types]DeliveryCounters // out, by the type of the queue
}

// DeliveryCounters counts what clients were handed out.
type DeliveryCounters [Handouts]uint64

// DeliveryKind is one of the things that [Handed] counts.
type DeliveryKind uint8

// The handouts.
const (
	Delivered DeliveryKind = iota // to consumers that acknowledge
	DeliveredNoAck
	Got // by basic.get, to be acknowledged
	GotNoAck
	GetEmpty    // basic.get that found nothing
	Redelivered // of the first four, those that had been handed out before
	Acked
	Handouts
)

// Add adds what another one has counted.
func (t *Counters) Add(o *Counters) {
	t.Published += o.Published
	t.Routed += o.Routed
	t.Returned += o.Returned
	t.Dropped += o.Dropped
	t.Confirmable += o.Confirmable
	t.Confirmed += o.Confirmed
	for i := range t.Deliveries {
		t.Deliveries[i].Add(&o.Deliveries[i])
	}
}

// Add adds what another one has counted.
func (h *DeliveryCounters) Add(o *DeliveryCounters) {
	for i := range h {
		h[i] += o[i]
	}
}

// AllDeliveries sums up what was handed out of queues of all types.
func (t *Counters) AllDeliveries() (sum DeliveryCounters) {
	for i := range t.Deliveries {
		sum.Add(&t.Deliveries[i])
	}
	return sum
}

// countDelivery counts a delivery.
func (t *Counters) countDelivery(s *consumer, again bool) {
	h := &t.Deliveries[s.Type]
	if again {
		h[Redelivered]++
	}
	switch {
	case s.Sink != nil && s.NoAck:
		h[DeliveredNoAck]++
	case s.Sink != nil:
		h[Delivered]++
	case s.NoAck:
		h[GotNoAck]++
	default:
		h[Got]++
	}
}

func (t *Counters) countSettled(kind queue.SettleKind, s queue.PendingAck) {
	if kind == queue.Ack {
		t.Deliveries[s.Consumer.Type][Acked]++
	}
}

// publishCounts counts what a channel's client published. It belongs to the connection's reader.
type publishCounts struct{ published, routed, returned, dropped uint64 }

func (s *publishCounts) unroutable(mandatory bool) {
	if mandatory {
		s.returned++
		return
	}
	s.dropped++
}

// publishCounters is sent for other goroutines to read: brought up to date once for many messages.
type publishCounters struct{ published, routed, returned, dropped atomic.Uint64 }

func (s *publishCounts) show(to *publishCounters) {
	to.published.Store(s.published)
	to.routed.Store(s.routed)
	if to.returned.Load() != s.returned {
		to.returned.Store(s.returned)
	}
	if to.dropped.Load() != s.dropped {
		to.dropped.Store(s.dropped)
	}
}

// counted is everything the channel has counted. The caller holds out's lock.
func (ch *channel) counted() Counters {
	t := ch.counters
	t.Published, t.Returned, t.Dropped = ch.sharedCounts.published.Load(), ch.sharedCounts.returned.Load(), ch.sharedCounts.dropped.Load()
	t.Routed = ch.sharedCounts.routed.Load()
	done, waiting := ch.confirms.answeredCount()
	t.Confirmed, t.Confirmable = done, done+uint64(waiting)
	return t
}

// answeredCount counts the messages that were confirmed, and those that are still to be.
func (w *confirmWindow) answeredCount() (done uint64, waiting int) {
	done = w.base
	for _, s := range w.states[w.head:] {
		if s&answered != 0 {
			done++
			continue
		}
		waiting++
	}
	return done, waiting
}

// Churn counts connections and channels that came and went since the broker was started.
type Churn struct {
	ConnectionsOpened, ConnectionsClosed atomic.Uint64
	ChannelsOpened, ChannelsClosed       atomic.Uint64
}

// Churn returns the server's counts, which go on counting.
func (s *Server) Churn() *Churn { return &s.churn }

// closedCounters sums up channels by vhost.
type closedCounters struct {
	mu     sync.Mutex // guards vhosts
	vhosts map[string]Counters
}

func (t *closedCounters) add(vhost string, o *Counters) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.vhosts == nil {
		t.vhosts = map[string]Counters{}
	}
	sum := t.vhosts[vhost]
	sum.Add(o)
	t.vhosts[vhost] = sum
}

// channelClosed adds what a channel has counted, which is about to be closed, to what the closed ones have. The caller holds out's
// lock.
func (s *Server) channelClosed(ch *channel) {
	s.churn.ChannelsClosed.Add(1)
	ch.counts.show(&ch.sharedCounts)
	t := ch.counted()
	s.closed.add(ch.conn.vhost.Name(), &t)
}

// ClosedCounters returns what all channels have counted that are closed, by vhost.
func (s *Server) ClosedCounters() map[string]Counters {
	s.closed.mu.Lock()
	defer s.closed.mu.Unlock()
	return maps.Clone(s.closed.vhosts)
}

// ForgetVHost drops what was counted for a vhost that is gone.
func (s *Server) ForgetVHost(name string) {
	s.closed.mu.Lock()
	defer s.closed.mu.Unlock()
	delete(s.closed.vhosts, name)
}
