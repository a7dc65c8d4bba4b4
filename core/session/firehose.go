package session

import (
	"bytes"
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
)

// While tracing is on in a vhost, a copy of each message that is published, delivered or fetched there is published to the
// exchange amq.rabbitmq.trace: the firehose. Its headers describe the message [RabbitMQ: firehose.html]. Copies are not copied again.

// copies reports whether the firehose is on in the connection's vhost.
func (o *observer) copies() bool { return o.vhost != nil && o.vhost.Tracing() }

// copyPublished publishes a copy of a message that a channel publishes. The message lies in the blocks of refs.
func (o *observer) copyPublished(r *round, channel uint16, m *queue.Message, queues []*queue.Mailbox, refs *blockRefs) {
	info := m.Routing
	fc := firehoseCopy{
		observer: o, channel: channel, exchange: info.Exchange, keys: slices.Concat([]string{info.Key}, info.CC, info.BCC), props: m.Props,
		extra: amqp.Table{{Key: "routed_queues", Value: routedQueues(info, queues)}},
	}
	if c, to := fc.make("publish."+info.Exchange, m.Body); c != nil {
		r.copied(to, c, refs)
	}
}

// routedQueues returns the names of the queues that a message goes to, except reply queues. On the default exchange every key
// counts as a name, whether or not the queue exists.
func routedQueues(o *queue.RoutingInfo, queues []*queue.Mailbox) amqp.Array {
	var names []string
	if o.Exchange == "" {
		names = slices.DeleteFunc(slices.Concat([]string{o.Key}, o.CC, o.BCC), isReplyName)
	} else {
		for _, q := range queues {
			if c := q.Config(); c.Schedule == nil { // otherwise an exchange holds the message, and it is not in a queue yet
				names = append(names, c.Name)
			}
		}
	}
	slices.Sort(names)
	return longstrs(slices.Compact(names))
}

// copyDelivered publishes copies of messages that were delivered to a channel. The queue's turn calls it.
func (o *observer) copyDelivered(channel uint16, from string, ds ...queue.Delivery) {
	if isReplyName(from) {
		return
	}
	var out outbox
	for i := range ds {
		d := &ds[i]
		if string(d.Exchange) == vhost.TraceExchange {
			continue
		}
		redelivered := int32(0)
		if d.Redelivered {
			redelivered = 1
		}
		fc := firehoseCopy{
			observer: o, channel: channel, exchange: string(d.Exchange), keys: deliveredKeys(d), props: d.Props,
			redelivered: amqp.Table{{Key: "redelivered", Value: redelivered}},
		}
		if c, to := fc.make("deliver."+from, d.Body); c != nil {
			c.Body = bytes.Clone(c.Body)
			out.add(to, nil, nil, c, &blockRefs{})
		}
	}
	for i, b := range out.batches {
		out.index.keys[i].queue.PublishGranted(b)
	}
}

// deliveredKeys returns the routing key and the CC keys of a delivery.
func deliveredKeys(d *queue.Delivery) []string {
	keys := []string{string(d.Key)}
	if x, err := amqp.ScanProps(d.Props); err == nil && x.Has(amqp.PropHeaders) {
		cc, _, _ := death.SenderSelected(x.Headers(d.Props)) // valid, because it was checked when the message was published
		keys = append(keys, cc...)
	}
	return keys
}

// firehoseCopy builds the copy of a message.
type firehoseCopy struct {
	observer    *observer
	channel     uint16
	exchange    string
	keys        []string
	props       []byte     // of the message
	redelivered amqp.Table // of a delivered message
	extra       amqp.Table // further headers; dropped if they do not fit
}

// make returns the copy, and the queues that the exchange routes it to; nil if there are none. The copy refers to the body.
func (fc *firehoseCopy) make(key string, body []byte) (*queue.Message, []*queue.Mailbox) {
	key = key[:min(len(key), 255)]
	var props []byte // headers only
	load := func() []byte {
		props = fc.properties()
		return props
	}
	queues := fc.observer.vhost.RouteCopy(&parts.Message{Key: key, Load: load, Body: body}, nil)
	if len(queues) == 0 {
		return nil, nil
	}
	if props == nil {
		props = fc.properties()
	}
	return &queue.Message{
		Routing: &queue.RoutingInfo{Exchange: vhost.TraceExchange, Key: key}, Props: props, Body: body, Flags: queue.HasHeaders,
	}, queues
}

// properties returns the copy's properties. Parts that do not fit into a frame are left out: first the message's headers, which may also be
// nested too deeply for a copy, then CC and BCC keys and the names of queues.
func (fc *firehoseCopy) properties() []byte {
	p, _ := amqp.ParseProperties(fc.props) // valid, because they were checked when the message was published
	b := fc.encode(&p)
	if fc.fits(b) {
		return b
	}
	p.Flags &^= amqp.PropHeaders.Flag()
	if b = fc.encode(&p); fc.fits(b) {
		return b
	}
	fc.keys, fc.extra = fc.keys[:1], nil
	return fc.encode(&p)
}

// fits reports whether properties can be sent to every client.
func (fc *firehoseCopy) fits(props []byte) bool {
	_, err := amqp.ScanProps(props)
	return err == nil && len(props) <= fc.observer.srv.propsMax()
}

func (fc *firehoseCopy) encode(p *amqp.Properties) []byte {
	o := fc.observer
	headers := amqp.Properties{Headers: slices.Concat(amqp.Table{
		{Key: "exchange_name", Value: fc.exchange},
		{Key: "routing_keys", Value: longstrs(fc.keys)},
		{Key: "properties", Value: propertiesTable(p)},
		{Key: "node", Value: o.srv.Node},
	}, fc.redelivered, amqp.Table{
		{Key: "vhost", Value: o.vhost.Name()},
		{Key: "connection", Value: o.peer.name()},
		{Key: "channel", Value: int32(fc.channel)},
		{Key: "user", Value: o.user},
	}, fc.extra)}
	headers.Set(amqp.PropHeaders)
	return headers.Append(nil)
}

// propertiesTable returns properties in the form of the firehose: the last one first, and numbers in 32 bits.
func propertiesTable(p *amqp.Properties) amqp.Table {
	table := amqp.Table{}
	add := func(prop amqp.Property, key string, value any) {
		if p.Has(prop) {
			table = append(table, amqp.Field{Key: key, Value: value})
		}
	}
	add(amqp.PropClusterID, "cluster_id", p.ClusterID)
	add(amqp.PropAppID, "app_id", p.AppID)
	add(amqp.PropUserID, "user_id", p.UserID)
	add(amqp.PropType, "type", p.Type)
	add(amqp.PropTimestamp, "timestamp", int32(p.Timestamp))
	add(amqp.PropMessageID, "message_id", p.MessageID)
	add(amqp.PropExpiration, "expiration", p.Expiration)
	add(amqp.PropReplyTo, "reply_to", p.ReplyTo)
	add(amqp.PropCorrelationID, "correlation_id", p.CorrelationID)
	add(amqp.PropPriority, "priority", int32(p.Priority))
	add(amqp.PropDeliveryMode, "delivery_mode", int32(p.DeliveryMode))
	add(amqp.PropHeaders, "headers", p.Headers)
	add(amqp.PropContentEncoding, "content_encoding", p.ContentEncoding)
	add(amqp.PropContentType, "content_type", p.ContentType)
	return table
}

func longstrs(list []string) amqp.Array {
	array := make(amqp.Array, len(list))
	for i, s := range list {
		array[i] = s
	}
	return array
}

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

func (o *observer) begin() { o.watching = o.srv.spans != nil || o.copies() }

// watches reports whether messages are traced, or copied to the firehose.
func (o *observer) watches() bool { return o.watching }

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
		p.observer.copyPublished(&p.round, p.out.id, m, queues, p.blockRefs())
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
		if len(props) > p.propsMax() {
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
