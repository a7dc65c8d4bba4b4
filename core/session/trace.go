package session

import (
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
)

// Whether a message is traced is decided once, when it is published, by what its publisher says in its headers or, where
// that is nothing, by chance. From then on a bit says so: nobody looks at the headers of messages that are not traced.

// contentHeadSize is what stands in a content header before the properties, bytes.
const contentHeadSize = 12

// observe shows the message at hand to those who look at messages.
func (ch *channel) observe(m *queue.Message, shells []*queue.Mailbox) {
	if ch.conn.srv.spans != nil {
		ch.sample(m)
	}
	if ch.conn.tracing() {
		ch.copyPublished(m, shells)
	}
}

// sample decides about the message at hand. One that is traced has a context in its headers afterwards; where there is no room
// for one in a frame it is not traced, so that it does not come to be more than its consumers take.
func (ch *channel) sample(m *queue.Message) {
	spans := ch.conn.srv.spans
	switch ch.props.parentSampling {
	case telemetry.ParentNotSampled:
		return
	case telemetry.NoParent:
		if ch.skipTraces > 0 {
			ch.skipTraces--
			return
		}
		props, gap := spans.Inject(m.Props, ch.props.index)
		ch.skipTraces = gap
		if len(props) > ch.conn.frameMax-amqp.FrameOverhead-contentHeadSize {
			return
		}
		m.Props = props
		m.Flags |= queue.HasHeaders
	}
	m.Flags |= queue.Traced
}

// contextInjected reports whether the message at hand, if it is traced, was given its context by the broker.
func (ch *channel) contextInjected() bool { return ch.props.parentSampling == telemetry.NoParent }

// tracePublished tells of a message that is traced. adopted is whether it was given its context.
func (ch *channel) tracePublished(m *queue.Message, queues int, adopted bool) {
	c := ch.conn
	exchange := amqp.BytesOf(m.Routing.Exchange)
	c.srv.spans.Published(&telemetry.Message{
		VHost: c.vhost.Name(), Exchange: exchange, Key: maskedKey(exchange, amqp.BytesOf(m.Routing.Key)), Props: m.Props, Size: len(m.Body),
		Injected: adopted,
	}, c.title, queues)
}

// traceCommitted tells of the messages of a transaction.
func (ch *channel) traceCommitted(ms []pendingMessage) {
	for i := range ms {
		if m := &ms[i]; m.Flags&queue.Traced != 0 {
			ch.tracePublished(&m.Message, len(m.queues), m.contextInjected)
		}
	}
}

// traceDelivered tells of a message that is traced. The caller holds out's lock.
func (ch *channel) traceDelivered(s *consumer, d *queue.Delivery) {
	c := ch.conn
	if c.srv.spans == nil {
		return // it comes from a time when traces were on
	}
	c.srv.spans.Delivered(&telemetry.Message{
		VHost: c.vhost.Name(), Exchange: d.Exchange, Key: maskedKey(d.Exchange, d.Key), Props: d.Props, Size: len(d.Body),
	}, maskedQueue(s.Queue.Config().Name), d.Enqueued, c.title, s.Tag, d.Redelivered)
}

// maskedKey is a routing key as others may see it: who knows the name of a reply queue may send replies.
func maskedKey(exchange, key []byte) []byte {
	if len(exchange) == 0 && len(key) > len(replyTo) && string(key[:len(replyTo)+1]) == replyTo+"." {
		return key[:len(replyTo)]
	}
	return key
}

// maskedQueue is the same for a queue's name.
func maskedQueue(name string) string {
	if strings.HasPrefix(name, replyTo+".") {
		return replyTo
	}
	return name
}
