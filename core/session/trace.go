package session

import (
	"bytes"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
)

// Whether a message is traced is decided once, when it is published: by the publisher's context in the headers or, without one, by
// sampling. After that a flag in the message records the decision, so that the headers of untraced messages are never read.

// contentHeadSize is the size of what precedes the properties in a content header's payload.
const contentHeadSize = 12

// observer records the spans of messages, and copies messages to the firehose, for all channels of a connection. Queues' turns use it, too,
// except for its last field, which belongs to the connection's reader.
type observer struct {
	srv      *Server
	vhost    *vhost.VHost // nil before connection.open
	peer     *Peer
	user     string
	title    string // the connection's name in spans; "" while tracing is off
	watching bool   // messages are traced, or copied to the firehose, in this round
}

// begin begins a round.
func (o *observer) begin() { o.watching = o.srv.spans != nil || o.copies() }

// watches reports whether messages are traced, or copied to the firehose.
func (o *observer) watches() bool { return o.watching }

// traces reports whether tracing is on.
func (o *observer) traces() bool { return o.srv.spans != nil }

// skipCount returns how many messages a new channel skips before it samples one.
func (o *observer) skipCount() int {
	if o.srv.spans == nil {
		return 0
	}
	return o.srv.spans.SkipCount()
}

// inject returns properties with a context, and how many messages to skip before the next one is sampled.
func (o *observer) inject(props []byte, index amqp.PropIndex) ([]byte, int) {
	return o.srv.spans.Inject(props, index)
}

// published records the span of a traced message that was published.
func (o *observer) published(m *queue.Message, queues int, contextInjected bool) {
	exchange := amqp.BytesOf(m.Routing.Exchange)
	o.srv.spans.Published(&telemetry.Message{
		VHost: o.vhost.Name(), Exchange: exchange, Key: maskedKey(exchange, amqp.BytesOf(m.Routing.Key)), Props: m.Props, Size: len(m.Body),
		Injected: contextInjected,
	}, o.title, queues)
}

// delivered records the span of a traced message that is delivered from a queue to a consumer.
func (o *observer) delivered(from, tag string, d *queue.Delivery) {
	if o.srv.spans == nil {
		return // tracing was on when the message was published
	}
	o.srv.spans.Delivered(&telemetry.Message{
		VHost: o.vhost.Name(), Exchange: d.Exchange, Key: maskedKey(d.Exchange, d.Key), Props: d.Props, Size: len(d.Body),
	}, maskedQueue(from), d.Enqueued, o.title, tag, d.Redelivered)
}

// observe traces the current message and copies it to the firehose, if either is on.
func (p *publisher) observe(m *queue.Message, queues []*queue.Mailbox) {
	if p.observer.traces() {
		p.sample(m)
	}
	if p.observer.copies() {
		p.observer.copyPublished(p.round, p.out.id, m, queues, p.blockRefs())
	}
}

// sample decides whether to trace the message. It injects a context if the headers have none and the frame has space.
func (p *publisher) sample(m *queue.Message) {
	switch p.props.parentSampling {
	case telemetry.ParentNotSampled:
		return
	case telemetry.NoParent:
		if p.skipTraces > 0 {
			p.skipTraces--
			return
		}
		props, skip := p.observer.inject(m.Props, p.props.index)
		p.skipTraces = skip
		if len(props) > p.propsMax {
			return
		}
		m.Props = props
		m.Flags |= queue.HasHeaders
	}
	m.Flags |= queue.Traced
}

// contextInjected reports whether the current message, if it is traced, got its context from the broker.
func (p *publisher) contextInjected() bool { return p.props.parentSampling == telemetry.NoParent }

// maskedKey cuts a routing key that is the name of a reply queue, because anyone who knows the whole name can send replies.
func maskedKey(exchange, key []byte) []byte {
	if len(exchange) == 0 && bytes.HasPrefix(key, []byte(replyTo+".")) {
		return key[:len(replyTo)]
	}
	return key
}

// maskedQueue does the same for the name of a queue.
func maskedQueue(name string) string {
	if isReplyName(name) {
		return replyTo
	}
	return name
}
