package session

import (
	"strconv"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/deadline"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A consumer extends the lease of a delivery with a message to the default exchange. No queue can have the name leaseKey. No permission
// is needed, because the delivery tag belongs to the channel itself.
const (
	leaseKey     = "amq.lease"
	headerTag    = "delivery-tag"
	headerExtend = "extend" // milliseconds from now on
)

// leaseInfo is the routing info of every message that extends a lease, and of no other message. It is never modified.
var leaseInfo = &queue.RoutingInfo{Key: leaseKey}

func isLeaseKey(exchange, key []byte) bool { return len(exchange) == 0 && string(key) == leaseKey }

// extend handles a message that extends the lease of a delivery. It takes effect at once, even in a transaction. If the delivery is no
// longer held, the message is unroutable.
func (ch *channel) extend() error {
	tag, by, err := ch.readExtension()
	if err != nil {
		return err
	}
	ch.counts.published++
	if !ch.extendLease(tag, by) {
		m := queue.Message{Routing: leaseInfo, Props: ch.content.props, Body: ch.content.body}
		ch.unroutable(&m, ch.content.mandatory)
	}
	if ch.mode == confirming {
		ch.seq++
		ch.untracked = append(ch.untracked, 0)
	}
	return nil
}

// readExtension reads the headers of a message that extends a lease.
func (ch *channel) readExtension() (tag uint64, by time.Duration, err error) {
	var headers amqp.RawTable
	if ch.props.index.Has(amqp.PropHeaders) {
		headers = ch.props.index.Headers(ch.content.props)
	}
	n, ok := parts.HeaderNumber(headers, headerTag)
	if !ok || n < 1 {
		return 0, 0, invalidHeader(headers, headerTag, "the tag of a delivery, 1 or more")
	}
	millis, ok := parts.HeaderNumber(headers, headerExtend)
	if !ok || millis < 1 || millis > hook.MaxMillis {
		return 0, 0, invalidHeader(headers, headerExtend, "1 to "+strconv.Itoa(hook.MaxMillis)+" milliseconds")
	}
	return uint64(n), time.Duration(millis) * time.Millisecond, nil
}

func invalidHeader(headers amqp.RawTable, name, expected string) error {
	got := "none"
	if v, ok := parts.Header(headers, name); ok {
		got = amqp.TypeName(v)
		if n, ok := parts.HeaderNumber(headers, name); ok {
			got = strconv.FormatInt(n, 10)
		}
	}
	return precondition("invalid header '%s' of a message to '%s': expected %s, got %s", name, leaseKey, expected, got)
}

// extendLease makes the lease of a delivery end the given time from now, and reports whether the delivery is held. It does not give a lease
// to a delivery that has none.
func (ch *channel) extendLease(tag uint64, by time.Duration) (held bool) {
	o := ch.lock()
	defer o.mu.Unlock()
	t := taggedAck{tag: tag}
	if ack := ch.unacked.find(tag); ack != nil {
		t.PendingAck = *ack
	} else if s := ch.tx.find(tag); s != nil {
		t = s.taggedAck
	} else {
		return false
	}
	l := ch.leases
	if l == nil || !ch.leased(t) {
		return true
	}
	end := ch.conn.now.Add(by)
	if l.extended == nil {
		l.extended = map[uint64]hook.Instant{}
	}
	l.extended[tag] = end
	l.runs.Push(deadline.Item{At: int64(end), Slot: tag<<runBits | 1})
	if len(l.extended) > 2*(ch.unacked.count()+len(ch.tx.settles))+minRuns {
		ch.pruneExtended()
	}
	if l.runs.Len() > l.most {
		end = 1 // makes the reader remove the stale ones
	}
	ch.conn.armLease(end)
	return true
}
