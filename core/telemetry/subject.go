package telemetry

import (
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
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

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// instant returns a point in time for attributes.
func instant(t hook.Instant) string { return t.Time().Format(time.RFC3339Nano) }

// Schema names the version of OpenTelemetry's semantic conventions that the attributes follow: for messaging, those for RabbitMQ.
const Schema = "https://opentelemetry.io/schemas/1.43.0"

// Attributes of OpenTelemetry's semantic conventions.
const (
	systemKey        = attribute.Key("messaging.system")
	operationKey     = attribute.Key("messaging.operation.name")
	operationTypeKey = attribute.Key("messaging.operation.type")
	destinationKey   = attribute.Key("messaging.destination.name")
	anonymousKey     = attribute.Key("messaging.destination.anonymous")
	errorTypeKey     = attribute.Key("error.type")
	routingKeyKey    = attribute.Key("messaging.rabbitmq.destination.routing_key")
	messageIDKey     = attribute.Key("messaging.message.id")
	conversationKey  = attribute.Key("messaging.message.conversation_id")
	bodySizeKey      = attribute.Key("messaging.message.body.size")
	clientKey        = attribute.Key("messaging.client.id")
)

// Our own attributes.
const (
	vhostKey = attribute.Key("curfew.vhost")
	queueKey = attribute.Key("curfew.queue")

	routedKey      = attribute.Key("curfew.publish.queues")
	consumerKey    = attribute.Key("curfew.delivery.consumer_tag")
	redeliveredKey = attribute.Key("curfew.delivery.redelivered")

	strategyKey = attribute.Key("curfew.expiry.strategy")
	deadlineKey = attribute.Key("curfew.expiry.deadline")
	latenessKey = attribute.Key("curfew.expiry.lateness_ms")

	reasonKey   = attribute.Key("curfew.dead_letter.reason")
	outcomeKey  = attribute.Key("curfew.dead_letter.outcome")
	exchangeKey = attribute.Key("curfew.dead_letter.exchange")
	newKeyKey   = attribute.Key("curfew.dead_letter.routing_key")

	scheduleKey     = attribute.Key("curfew.schedule")
	heldKey         = attribute.Key("curfew.hold.until")
	holdLatenessKey = attribute.Key("curfew.hold.lateness_ms")

	policyKey    = attribute.Key("curfew.policy.name")
	digestKey    = attribute.Key("curfew.policy.digest")
	hookKey      = attribute.Key("curfew.policy.hook")
	fuelKey      = attribute.Key("curfew.policy.fuel")
	batchKey     = attribute.Key("curfew.policy.batch")
	verdictKey   = attribute.Key("curfew.policy.verdict")
	policyHold   = attribute.Key("curfew.policy.hold") // until when
	policyPrefix = "curfew.policy.attribute."          // of attributes that policies add

	idleKey         = attribute.Key("curfew.queue.idle_ms")
	messagesKey     = attribute.Key("curfew.queue.messages")
	deadLetteredKey = attribute.Key("curfew.queue.dead_lettered")

	bytesKey             = attribute.Key("curfew.recovery.bytes")
	entriesKey           = attribute.Key("curfew.recovery.entries")
	recoveredMessagesKey = attribute.Key("curfew.recovery.messages")
	recoveredQueuesKey   = attribute.Key("curfew.recovery.queues")
)

// valid replaces invalid UTF-8 in a client's text: exporters refuse a whole batch for one bad byte.
func valid(s string) string { return strings.ToValidUTF8(s, "�") }

func text(k attribute.Key, s string) attribute.KeyValue { return k.String(valid(s)) }
