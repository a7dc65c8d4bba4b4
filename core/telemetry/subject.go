package telemetry

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// subject is the message that a span is about, as far as spans tell of it: a copy.
type subject struct {
	context                                spanContext
	vhost                                  string
	exchange, key, id, conversation, state string // parts of one string
	size                                   int
}

func (m *Message) subject() subject {
	return newSubject(m.VHost, m.Exchange, m.Key, m.Props, m.Size)
}

func newSubject(vhost string, exchange, key, props []byte, size int) subject {
	x, err := amqp.ScanProps(props)
	if err != nil {
		props = nil // tells of it what there is
	}
	headers := x.Headers(props)
	id, _ := x.MessageID(props)
	conversation, _ := x.CorrelationID(props)
	texts := share([...][]byte{exchange, key, id, conversation, stateOf(headers)})
	return subject{
		context: contextOf(headers), vhost: vhost, size: size,
		exchange: texts[0], key: texts[1], id: texts[2], conversation: texts[3], state: texts[4],
	}
}

// share copies texts into one string, of which those it returns are parts.
func share(texts [5][]byte) (copies [5]string) {
	size := 0
	for _, t := range texts {
		size += len(t)
	}
	var b strings.Builder
	b.Grow(size)
	for _, t := range texts {
		b.Write(t)
	}
	all := b.String()
	for i, t := range texts {
		copies[i], all = all[:len(t)], all[len(t):]
	}
	return copies
}

// parent returns the context for spans about the message, and their link to what brought it.
func (m *subject) parent() (context.Context, []trace.Link) {
	ctx := context.Background()
	if !m.context.valid() {
		return ctx, nil
	}
	c := m.context.remote(m.state)
	return trace.ContextWithRemoteSpanContext(ctx, c), []trace.Link{{SpanContext: c}}
}

// attributes returns what every span about the message tells; queue is "" where none is concerned. There is one such list at a
// time: spans have copies.
func (s *Spans) attributes(m *subject, operation, queue string) []attribute.KeyValue {
	as := append(s.scratch[:0],
		systemKey.String("rabbitmq"), operationKey.String(operation), text(destinationKey, m.destination(queue)),
		bodySizeKey.Int(m.size), text(vhostKey, m.vhost))
	as = appendText(as, routingKeyKey, m.key)
	as = appendText(as, messageIDKey, m.id)
	as = appendText(as, conversationKey, m.conversation)
	return appendText(as, queueKey, queue)
}

// destination is where the message goes, as OpenTelemetry's conventions for RabbitMQ have it.
func (m *subject) destination(queue string) string {
	if queue == m.key {
		queue = ""
	}
	name := m.exchange
	for _, part := range []string{m.key, queue} {
		if name != "" && part != "" {
			name += ":"
		}
		name += part
	}
	return exchangeName(name)
}

// defaultExchange is how the exchange without a name is called where a name is needed.
const defaultExchange = "amq.default"

// exchangeName is the exchange's name for names of spans.
func exchangeName(name string) string {
	if name == "" {
		return defaultExchange
	}
	return name
}

// at returns the option for the time of a span or of an event.
func at(t hook.Instant) trace.SpanEventOption { return trace.WithTimestamp(t.Time()) }

// begin begins a span. What it tells of is set afterwards: options would have copies of it made.
func (s *Spans) begin(ctx context.Context, name string, kind trace.SpanKind, t hook.Instant, links []trace.Link, as []attribute.KeyValue) (context.Context, trace.Span) {
	s.made.Add(1)
	s.scratch = as
	ctx, span := s.tracer.Start(ctx, valid(name), trace.WithSpanKind(kind), at(t))
	span.SetAttributes(as...)
	for _, l := range links {
		span.AddLink(l)
	}
	return ctx, span
}

// milliseconds is a duration as attributes have it.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// instant is a point in time as attributes have it.
func instant(t hook.Instant) string { return t.Time().Format(time.RFC3339Nano) }
