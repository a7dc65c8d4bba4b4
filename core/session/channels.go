package session

import (
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
)

// channels are the open channels of a connection, also those that wait for close-ok. They belong to the connection's reader.
type channels struct {
	out      *writeBuffer
	byNumber []*channel // nil if closed; written under out's lock
	open     int
	last     *channel // channel of the previous frame
}

// at returns the channel with a number, or nil.
func (t *channels) at(id uint16) *channel {
	if ch := t.last; ch != nil && ch.outlet.id == id {
		return ch
	}
	if int(id) >= len(t.byNumber) || t.byNumber[id] == nil {
		return nil
	}
	t.last = t.byNumber[id]
	return t.last
}

// all returns the channels by number, with nil for closed ones. Other goroutines hold out's lock while they use the result.
func (t *channels) all() []*channel { return t.byNumber }

// check refuses channel numbers above channel-max [AMQP 1.4.2.6, channel-max]. RabbitMQ limits the number of open
// channels instead; where both would refuse, the text is RabbitMQ's.
func (t *channels) check(id uint16, most int) error {
	if int(id) <= most {
		return nil
	}
	if t.open >= most {
		return amqp.Errorf(amqp.ReplyNotAllowed,
			"number of channels opened (%d) has reached the negotiated channel_max (%d)", t.open, most)
	}
	return amqp.Errorf(amqp.ReplyNotAllowed, "channel %d is higher than the negotiated channel_max (%d)", id, most)
}

func (t *channels) add(ch *channel) {
	t.open++
	t.out.mu.Lock()
	defer t.out.mu.Unlock()
	id := int(ch.outlet.id)
	if grow := id + 1 - len(t.byNumber); grow > 0 {
		t.byNumber = append(t.byNumber, make([]*channel, grow)...)
	}
	t.byNumber[id] = ch
}

func (t *channels) remove(id uint16) {
	t.last = nil
	t.open--
	t.out.mu.Lock()
	defer t.out.mu.Unlock()
	t.byNumber[id] = nil
}

// clear removes all channels.
func (t *channels) clear() {
	t.last, t.open = nil, 0
	t.out.mu.Lock()
	defer t.out.mu.Unlock()
	clear(t.byNumber)
}

// forgetQueues drops references to queues that may have been deleted: routes of topologies before a generation, and basic.get.
func (t *channels) forgetQueues(generation uint64) {
	for _, ch := range t.byNumber {
		if ch != nil {
			ch.publisher.forgetRoutes(generation)
			ch.deliveries.consumers.forgetGetter()
		}
	}
}

// infos describes the channels that are open on both sides. The caller holds out's lock, as for the methods below.
func (t *channels) infos() (all []ChannelInfo) {
	for _, ch := range t.byNumber {
		if ch != nil && !ch.outlet.closed {
			all = append(all, ch.info())
		}
	}
	return all
}

// count returns the number of channels.
func (t *channels) count() (n int) {
	for _, ch := range t.byNumber {
		if ch != nil {
			n++
		}
	}
	return n
}

// hasUnsettled reports whether a channel has unsettled deliveries. The reader calls it.
func (t *channels) hasUnsettled() bool {
	return slices.ContainsFunc(t.byNumber, func(ch *channel) bool {
		return ch != nil && !ch.outlet.closed && (ch.deliveries.unsettled.count() > 0 || ch.tx.holds())
	})
}

// counters returns the sum of what the channels have counted.
func (t *channels) counters() (sum Counters) {
	for _, ch := range t.byNumber {
		if ch != nil && !ch.outlet.closed {
			own := ch.allCounters()
			sum.Add(&own)
		}
	}
	return sum
}
