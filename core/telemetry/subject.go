package telemetry

import (
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// subject has the facts about a message that spans need. It is valid until the message's bytes change.
type subject struct {
	tracedProps
	vhost, exchange, key string
	size                 int
}

// tracedProps has the properties of a message that spans need.
type tracedProps struct {
	context                 spanContext
	id, conversation, state string
}

func parseProps(props []byte) tracedProps {
	x, err := amqp.ScanProps(props)
	if err != nil {
		props = nil // the span has the other facts
	}
	headers := x.Headers(props)
	id, _ := x.MessageID(props)
	conversation, _ := x.CorrelationID(props)
	return tracedProps{contextOf(headers), stringOf(id), stringOf(conversation), stringOf(stateOf(headers))}
}

// traceOf returns the trace in a message's properties, the zero value if there is none. It does not allocate.
func traceOf(props []byte) trace.TraceID {
	x, err := amqp.ScanProps(props)
	if err != nil {
		return trace.TraceID{}
	}
	c := contextOf(x.Headers(props))
	return c.trace
}

func (m *Message) subject() subject {
	return newSubject(m.VHost, m.Exchange, m.Key, m.Props, m.Size)
}

func newSubject(vhost string, exchange, key, props []byte, size int) subject {
	return subject{tracedProps: parseProps(props), vhost: vhost, exchange: stringOf(exchange), key: stringOf(key), size: size}
}

// addMessage adds the attributes that every span about a message has; queue "" means none.
func (p *Span) addMessage(m *subject, operation, queue string) {
	p.destination = appendDestination(p.destination[:0], m.exchange, m.key, queue)
	p.Attributes = append(p.Attributes,
		systemKey.String("rabbitmq"), operationKey.String(operation), text(destinationKey, stringOf(p.destination)),
		bodySizeKey.Int(m.size), text(vhostKey, m.vhost))
	p.addText(routingKeyKey, m.key)
	p.addText(messageIDKey, m.id)
	p.addText(conversationKey, m.conversation)
	p.addText(queueKey, queue)
	if anonymous(queue) {
		p.add(anonymousKey.Bool(true))
	}
}

// anonymous reports whether a destination is a queue that was declared without a name and named by the broker.
func anonymous(name string) bool { return strings.HasPrefix(name, "amq.gen-") }

// appendDestination appends the name of a destination, following OpenTelemetry's conventions for RabbitMQ.
func appendDestination(dst []byte, exchange, key, queue string) []byte {
	if queue == key {
		queue = ""
	}
	began := len(dst)
	for _, part := range [...]string{exchange, key, queue} {
		if len(dst) > began && part != "" {
			dst = append(dst, ':')
		}
		dst = append(dst, part...)
	}
	if len(dst) == began {
		return append(dst, defaultExchange...)
	}
	return dst
}

// defaultExchange is the name used for the default exchange where a name is needed.
const defaultExchange = "amq.default"

// exchangeName returns an exchange's name for spans.
func exchangeName(name string) string {
	if name == "" {
		return defaultExchange
	}
	return name
}

// milliseconds returns a duration for attributes.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// instant returns a point in time for attributes.
func instant(t hook.Instant) string { return t.Time().Format(time.RFC3339Nano) }
