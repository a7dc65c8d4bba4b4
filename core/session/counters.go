package session

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/queue"
)

// Counters counts the clients' actions on channels.
type Counters struct {
	Published   uint64
	Routed      uint64 // once for each queue
	Returned    uint64 // mandatory and unroutable
	Dropped     uint64 // unroutable, not mandatory
	Confirmable uint64 // published in confirm mode
	Confirmed   uint64 // acked or nacked, of the confirmable ones
	LeasesEnded uint64 // deliveries that were not settled by the end of their lease

	Deliveries [queue.Types]DeliveryCounters // by the type of the queue
}

// DeliveryCounters counts deliveries and their outcomes.
type DeliveryCounters [deliveryKinds]uint64

// DeliveryKind is an index of DeliveryCounters.
type DeliveryKind uint8

// The kinds of deliveries.
const (
	Delivered DeliveryKind = iota // to consumers with acknowledgements
	DeliveredNoAck
	Got // by basic.get, with acknowledgement
	GotNoAck
	GetEmpty    // basic.get on an empty queue
	Redelivered // redeliveries among the first four kinds
	Acked
	deliveryKinds
)

// Add adds the counts of o.
func (t *Counters) Add(o *Counters) {
	t.Published += o.Published
	t.Routed += o.Routed
	t.Returned += o.Returned
	t.Dropped += o.Dropped
	t.Confirmable += o.Confirmable
	t.Confirmed += o.Confirmed
	t.LeasesEnded += o.LeasesEnded
	for i := range t.Deliveries {
		t.Deliveries[i].Add(&o.Deliveries[i])
	}
}

// Add adds the counts of o.
func (d *DeliveryCounters) Add(o *DeliveryCounters) {
	for i := range d {
		d[i] += o[i]
	}
}

// AllDeliveries returns the sum over all types of queues.
func (t *Counters) AllDeliveries() (sum DeliveryCounters) {
	for i := range t.Deliveries {
		sum.Add(&t.Deliveries[i])
	}
	return sum
}

func (t *Counters) countDelivery(cs *consumer, redelivered bool) {
	d := &t.Deliveries[cs.Type]
	if redelivered {
		d[Redelivered]++
	}
	switch {
	case cs.Sink != nil && cs.NoAck:
		d[DeliveredNoAck]++
	case cs.Sink != nil:
		d[Delivered]++
	case cs.NoAck:
		d[GotNoAck]++
	default:
		d[Got]++
	}
}

func (t *Counters) countSettled(kind queue.SettleKind, ack queue.PendingAck) {
	if kind == queue.Ack {
		t.Deliveries[ack.Consumer.Type][Acked]++
	}
}

// publishCounts counts a channel's published messages. It belongs to the connection's
// reader.
type publishCounts struct{ published, routed, returned, dropped uint64 }

// publishCounters is a copy of publishCounts for other goroutines, updated once for many messages.
type publishCounters struct{ published, routed, returned, dropped atomic.Uint64 }

func (s *publishCounts) share(to *publishCounters) {
	to.published.Store(s.published)
	to.routed.Store(s.routed)
	if to.returned.Load() != s.returned {
		to.returned.Store(s.returned)
	}
	if to.dropped.Load() != s.dropped {
		to.dropped.Store(s.dropped)
	}
}

// addTo adds the publisher's counts to t. The caller holds out's lock.
func (p *publisher) addTo(t *Counters) {
	s := &p.sharedCounts
	t.Published, t.Dropped, t.Routed = s.published.Load(), s.dropped.Load(), s.routed.Load()
	t.Returned = s.returned.Load()
	p.confirms.addTo(t)
}

// allCounters returns everything that the channel has counted. The caller holds out's lock.
func (ch *channel) allCounters() Counters {
	t := ch.deliveries.unsettled.counted()
	ch.publisher.addTo(&t)
	return t
}

// Churn counts connections and channels opened and closed since the broker started.
type Churn struct {
	ConnectionsOpened, ConnectionsClosed atomic.Uint64
	ChannelsOpened, ChannelsClosed       atomic.Uint64
}

// Churn returns the server's live counters.
func (s *Server) Churn() *Churn { return &s.churn }

// closedCounters sums up closed channels by vhost.
type closedCounters struct {
	mu     sync.Mutex // guards vhosts
	vhosts map[string]Counters
}

// channelClosed counts a closed channel of a vhost, and adds the channel's counters to
// those of the vhost.
func (s *Server) channelClosed(vhost string, own *Counters) {
	s.churn.ChannelsClosed.Add(1)
	s.closed.mu.Lock()
	defer s.closed.mu.Unlock()
	if s.closed.vhosts == nil {
		s.closed.vhosts = map[string]Counters{}
	}
	sum := s.closed.vhosts[vhost]
	sum.Add(own)
	s.closed.vhosts[vhost] = sum
}

// ClosedCounters returns the sums of all closed channels, by vhost.
func (s *Server) ClosedCounters() map[string]Counters {
	s.closed.mu.Lock()
	defer s.closed.mu.Unlock()
	return maps.Clone(s.closed.vhosts)
}

// ForgetVHost drops the counters of a deleted vhost.
func (s *Server) ForgetVHost(name string) {
	s.closed.mu.Lock()
	defer s.closed.mu.Unlock()
	delete(s.closed.vhosts, name)
}
