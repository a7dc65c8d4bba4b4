package session

import (
	"bytes"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// propsReader reads the properties of messages for the channels of a connection. It belongs to the connection's reader.
type propsReader struct {
	access *access
	vhost  *vhost.VHost
	spans  *telemetry.Spans // nil: tracing is off
	round  *round
	values holdValues
}

// parsedProps holds the parts of a message's properties that the broker needs. It is cached
// for the next message, because most publishers send the same properties again and again.
type parsedProps struct {
	known bool
	once  bool   // the fields below are invalid for later messages, even with the same properties
	raw   []byte // as received, if known
	reply uint64 // version of the channel's reply queue, whose name may be in stored

	foreign bool // the user-id is another user's, which requires a tag

	index amqp.PropIndex // of the properties as stored

	stored         []byte // as stored, if that differs from as received; never modified
	cc, bcc        []string
	expiration     hook.Limit
	wait           queue.Wait
	priority       uint8
	flags          queue.Flags
	parentSampling telemetry.ParentSampling // set while tracing is on
}

// maxCachedProps is the largest size of properties that a channel caches, bytes.
const maxCachedProps = 4 << 10

// check checks properties, and returns them as they are to be stored: unchanged, or a
// changed copy. It stores the values that it reads in p. A channel's reply queue is where
// it expects direct replies.
func (r *propsReader) check(p *parsedProps, props []byte, reply *replyQueue) ([]byte, error) {
	if !p.known || p.reply != reply.version() || !bytes.Equal(p.raw, props) || p.foreign && !r.access.impersonates() {
		p.known = false
		if err := r.parse(p, props, reply.queue()); err != nil {
			return nil, err
		}
		if p.known = len(props) <= maxCachedProps && !p.once; p.known {
			p.raw, p.reply = append(p.raw[:0], props...), reply.version()
		}
	}
	if p.stored != nil {
		return p.stored, nil
	}
	return props, nil
}

func (r *propsReader) parse(p *parsedProps, props []byte, reply *queue.Mailbox) error {
	x, err := amqp.ScanProps(props)
	if err != nil {
		return err
	}
	if to, _ := x.ReplyTo(props); string(to) == replyTo && reply == nil {
		return precondition("fast reply consumer does not exist")
	}
	if err := r.checkUserID(p, &x, props); err != nil {
		return err
	}
	if p.expiration, err = r.expiration(x.Expiration(props)); err != nil {
		return err
	}
	p.flags = 0
	if x.Persistent(props) {
		p.flags |= queue.Persistent
	}
	var hasPriority bool
	if p.priority, hasPriority = x.Priority(props); hasPriority {
		p.flags |= queue.HasPriority
	}
	p.cc, p.bcc, p.stored, p.wait, p.once = nil, nil, nil, 0, false
	if x.Has(amqp.PropHeaders) {
		p.flags |= queue.HasHeaders
		if err := r.readHeaders(p, x.Headers(props)); err != nil {
			return err
		}
	}
	p.index = x
	if r.spans != nil {
		p.parentSampling = r.spans.ParentSamplingOf(x.Headers(props))
	}
	p.rewrite(props, reply)
	return nil
}

// checkUserID refuses a user-id that is not the user's own [RabbitMQ: validated-user-id.html].
func (r *propsReader) checkUserID(p *parsedProps, x *amqp.PropIndex, props []byte) error {
	id, given := x.UserID(props)
	p.foreign = given && string(id) != r.access.name()
	if !p.foreign || r.access.impersonates() {
		return nil
	}
	return precondition("user_id property set to '%s' but authenticated user was '%s'", strings.ToValidUTF8(string(id), "?"), r.access.name())
}

// rewrite changes properties that are not stored as received: it removes the BCC header, and replaces the reply-to of a
// request for a direct reply by the name of the channel's reply queue.
func (p *parsedProps) rewrite(props []byte, reply *queue.Mailbox) {
	to, _ := p.index.ReplyTo(props)
	wantsReply := string(to) == replyTo
	if p.bcc != nil {
		props = p.store(death.StripBCC(nil, props, p.index))
	}
	if wantsReply {
		p.store(amqp.RewriteProps(nil, props, p.index, amqp.PropEdit{ReplyTo: reply.Config().Name}))
	}
}

func (p *parsedProps) store(props []byte) []byte {
	p.stored = props
	p.index, _ = amqp.ScanProps(props) // valid, because the broker made them
	return props
}

// expiration reads the expiration property, if there is one.
func (r *propsReader) expiration(raw []byte, given bool) (hook.Limit, error) {
	if !given {
		return 0, nil
	}
	limit, err := r.vhost.CheckExpiration(raw)
	if err != nil {
		return 0, precondition("invalid expiration '%s': %v", strings.ToValidUTF8(string(raw), "?"), err)
	}
	return limit, nil
}

// routingHeaders is the number of routing headers, CC and BCC, which come first among the headers that are read.
const routingHeaders = 2

// readHeaders reads, in one pass, the headers that affect routing and holds.
func (r *propsReader) readHeaders(p *parsedProps, headers amqp.RawTable) (err error) {
	var found [routingHeaders + chain.MaxHoldHeaders]amqp.RawField
	names := r.vhost.Headers()
	if !headers.Find(names, found[:]) {
		return nil
	}
	if p.cc, p.bcc, err = death.SenderSelectedIn(&found[0], &found[1]); err != nil {
		return err
	}
	return r.readHold(p, found[routingHeaders:names.Len()])
}

// readHold reads the headers that say how long to hold a message.
func (r *propsReader) readHold(p *parsedProps, found []amqp.RawField) error {
	now := r.round.instant()
	values := r.values.of(len(found))
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
	w, err := r.vhost.ReadHold(now, values)
	if err != nil {
		return precondition("%v", err)
	}
	p.wait, p.once = waitOf(now, w)
	return nil
}

// holdValues is reused memory for the values of headers while a plugin reads them. It is
// nil until a message has such headers.
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

// waitOf returns the later end of a wait. once reports that the result depends on now, so
// that it must not be reused for a later message.
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
