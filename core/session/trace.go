package session

import (
	"bytes"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
)

// Whether a message is traced is decided once, when it is published: by the publisher's context in the headers or, without one, by
// sampling. After that a flag in the message records the decision, so that the headers of untraced messages are never read.

// contentHeadSize is the size of what precedes the properties in a content header's payload.
const contentHeadSize = 12

// observe traces the current message and copies it to the firehose, if either is on.
func (ch *channel) observe(m *queue.Message, queues []*queue.Mailbox) {
	if ch.conn.srv.spans != nil {
		ch.sample(m)
	}
	if ch.conn.tracing() {
		ch.copyPublished(m, queues)
	}
}

// sample decides whether to trace the message. It injects a context if the headers have none and the frame has space.
func (ch *channel) sample(m *queue.Message) {
	switch ch.props.parentSampling {
	case telemetry.ParentNotSampled:
		return
	case telemetry.NoParent:
		if ch.skipTraces > 0 {
			ch.skipTraces--
			return
		}
		props, skip := ch.conn.srv.spans.Inject(m.Props, ch.props.index)
		ch.skipTraces = skip
		if len(props) > ch.conn.propsMax() {
			return
		}
		m.Props = props
		m.Flags |= queue.HasHeaders
	}
	m.Flags |= queue.Traced
}

// contextInjected reports whether the current message, if it is traced, got its context from the broker.
func (ch *channel) contextInjected() bool { return ch.props.parentSampling == telemetry.NoParent }

// tracePublished records the span of a traced message that was published.
func (ch *channel) tracePublished(m *queue.Message, queues int, contextInjected bool) {
	c := ch.conn
	exchange := amqp.BytesOf(m.Routing.Exchange)
	c.srv.spans.Published(&telemetry.Message{
		VHost: c.vhost.Name(), Exchange: exchange, Key: maskedKey(exchange, amqp.BytesOf(m.Routing.Key)), Props: m.Props, Size: len(m.Body),
		Injected: contextInjected,
	}, c.title, queues)
}

// traceCommitted records the spans of a transaction's traced messages.
func (ch *channel) traceCommitted(ms []pendingMessage) {
	for i := range ms {
		if m := &ms[i]; m.Flags&queue.Traced != 0 {
			ch.tracePublished(&m.Message, leads(&m.Message, m.queues), m.contextInjected)
		}
	}
}

// traceDelivered records the span of a traced message that is delivered. The caller holds out's lock.
func (ch *channel) traceDelivered(cs *consumer, d *queue.Delivery) {
	c := ch.conn
	if c.srv.spans == nil {
		return // tracing was on when the message was published
	}
	c.srv.spans.Delivered(&telemetry.Message{
		VHost: c.vhost.Name(), Exchange: d.Exchange, Key: maskedKey(d.Exchange, d.Key), Props: d.Props, Size: len(d.Body),
	}, maskedQueue(cs.Queue.Config().Name), d.Enqueued, c.title, cs.Tag, d.Redelivered)
}

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
