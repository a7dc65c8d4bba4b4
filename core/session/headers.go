package session

import (
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// routingHeaders is the number of routing headers, CC and BCC, which come first among the headers that are read.
const routingHeaders = 2

// readHeaders reads, in one pass, the headers that affect routing and holds.
func (ch *channel) readHeaders(headers amqp.RawTable) (err error) {
	var found [routingHeaders + chain.MaxHoldHeaders]amqp.RawField
	names := ch.conn.vhost.Headers()
	if !headers.Find(names, found[:]) {
		return nil
	}
	p := &ch.props
	if p.cc, p.bcc, err = death.SenderSelectedIn(&found[0], &found[1]); err != nil {
		return err
	}
	return ch.readHold(found[routingHeaders:names.Len()])
}

// readHold reads the headers that say how long to hold a message.
func (ch *channel) readHold(found []amqp.RawField) error {
	c, p := ch.conn, &ch.props
	values := c.holdValues.of(len(found))
	defer clear(values)
	some := false
	for i, f := range found {
		if f.Key == nil {
			continue
		}
		v, err := f.Decode()
		if err != nil {
			return err
		}
		if t, ok := v.(amqp.Timestamp); ok {
			v = timeOf(t)
		}
		values[i], some = v, true
	}
	if !some {
		return nil
	}
	w, err := c.vhost.ReadHold(c.now, values)
	if err != nil {
		return precondition("%v", err)
	}
	p.wait, p.once = waitOf(c.now, w)
	return nil
}

// holdValues is reused memory for the values of headers while a plugin reads them. It is nil until a message has such headers.
type holdValues []any

// of returns n empty values.
func (h *holdValues) of(n int) []any {
	if *h == nil {
		*h = make(holdValues, chain.MaxHoldHeaders)
	}
	return (*h)[:n]
}

// timeOf converts a timestamp to a time. Values beyond the range of times become the last second of RFC 3339's range.
func timeOf(t amqp.Timestamp) time.Time {
	const last = 253402300799 // seconds: the end of the year 9999
	return time.Unix(int64(min(t, last)), 0).UTC()
}

// waitOf returns the later end of a wait. once reports that the result depends on now, so that it must not be reused for a later message.
func waitOf(now hook.Instant, w hook.Wait) (_ queue.Wait, once bool) {
	after := hook.Instant(0).AddMillis(max(w.After, 0))
	switch {
	case w.Until <= 0:
		return queue.WaitFor(time.Duration(after)), false
	case after == 0:
		return queue.WaitUntil(w.Until), false
	case now.Add(time.Duration(after)) > w.Until:
		return queue.WaitFor(time.Duration(after)), true
	}
	return queue.WaitUntil(w.Until), true
}
