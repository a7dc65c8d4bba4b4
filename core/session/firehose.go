package session

import (
	"bytes"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
)

// The firehose: while a vhost is traced, a copy of each message that is published, delivered or fetched in it goes to the exchange
// amq.rabbitmq.trace, with what it was and what became of it in the headers [RabbitMQ: firehose.html]. Copies are not copied again.

// tracing says whether the connection's vhost is traced.
func (c *Conn) tracing() bool { return c.vhost != nil && c.vhost.Tracing() }

// copyPublished sends a copy of the message at hand, which was routed to queues.
func (ch *channel) copyPublished(m *queue.Message, shells []*queue.Mailbox) {
	c, o := ch.conn, m.Routing
	fc := firehoseCopy{
		channel: ch, exchange: o.Exchange, keys: slices.Concat([]string{o.Key}, o.CC, o.BCC), props: m.Props,
		extra: amqp.Table{{Key: "routed_queues", Value: routedQueues(o, shells)}},
	}
	shells, props := fc.route("publish." + o.Exchange)
	if len(shells) == 0 {
		return
	}
	blocks := blockRefs{ch.content.held, ch.content.parts, c.block}
	c.outbox.addTo(shells, nil, fc.message("publish."+o.Exchange, props, m.Body), &blocks)
}

// routedQueues are the names of the queues that a message goes to. To the default exchange every key is one, whether it exists or not;
// direct replies are no queues.
func routedQueues(o *queue.RoutingInfo, shells []*queue.Mailbox) amqp.Array {
	var names []string
	if o.Exchange == "" {
		names = slices.DeleteFunc(slices.Concat([]string{o.Key}, o.CC, o.BCC), isReplyName)
	} else {
		for _, s := range shells {
			names = append(names, s.Config().Name)
		}
	}
	slices.Sort(names)
	return longstrs(slices.Compact(names))
}

func isReplyName(name string) bool { return strings.HasPrefix(name, replyTo+".") }

// copyDelivered sends copies of what was delivered to the consumer, or fetched. It is called on the queue's turn.
func (s *consumer) copyDelivered(ds ...queue.Delivery) {
	name := s.Queue.Config().Name
	if isReplyName(name) {
		return
	}
	var outs outbox
	key := "deliver." + name
	for i := range ds {
		d := &ds[i]
		if string(d.Exchange) == vhost.TraceExchange {
			continue
		}
		fc := firehoseCopy{
			channel: s.channel, exchange: string(d.Exchange), keys: deliveredKeys(d), props: d.Props,
			redelivered: amqp.Table{{Key: "redelivered", Value: number(d.Redelivered)}},
		}
		if shells, props := fc.route(key); len(shells) > 0 {
			outs.addTo(shells, nil, fc.message(key, props, bytes.Clone(d.Body)), &blockRefs{})
		}
	}
	for i, b := range outs.batches {
		outs.index.keys[i].queue.PublishAsync(b)
	}
}

// deliveredKeys are the routing keys that still show in a message.
func deliveredKeys(d *queue.Delivery) []string {
	keys := []string{string(d.Key)}
	if x, err := amqp.ScanProps(d.Props); err == nil && x.Has(amqp.PropHeaders) {
		cc, _, _ := death.SenderSelected(x.Headers(d.Props)) // what is wrong was refused when it was published
		keys = append(keys, cc...)
	}
	return keys
}

func number(yes bool) int32 {
	if yes {
		return 1
	}
	return 0
}

// firehoseCopy is the copy of a message while it is made.
type firehoseCopy struct {
	channel     *channel
	exchange    string
	keys        []string
	props       []byte     // of the message
	redelivered amqp.Table // if it was delivered
	extra       amqp.Table // what else is told of it
}

// route returns the queues that the copy goes to, and its properties: nothing but headers.
func (fc *firehoseCopy) route(key string) (shells []*queue.Mailbox, props []byte) {
	headers := func() amqp.RawTable {
		props = fc.properties()
		x, _ := amqp.ScanProps(props) // they are our own
		return x.Headers(props)
	}
	shells = fc.channel.conn.vhost.RouteCopy(truncatedKey(key), headers, nil)
	if len(shells) > 0 && props == nil {
		props = fc.properties()
	}
	return shells, props
}

// message is the copy.
func (fc *firehoseCopy) message(key string, props, body []byte) *queue.Message {
	return &queue.Message{
		Routing: &queue.RoutingInfo{Exchange: vhost.TraceExchange, Key: truncatedKey(key)}, Props: props, Body: body, Flags: queue.HasHeaders,
	}
}

// truncatedKey is a key no longer than a key may be.
func truncatedKey(key string) string { return key[:min(len(key), 255)] }

// properties are the copy's. What there is no room for in a frame is left out: headers, then further keys and the names of queues, of
// which there may be any number. So are headers that nest as deep as they may: in the copy they lie deeper.
func (fc *firehoseCopy) properties() []byte {
	p, _ := amqp.ParseProperties(fc.props) // they were checked when it was published
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

// fits reports whether properties can be sent to anybody.
func (fc *firehoseCopy) fits(props []byte) bool {
	_, wrong := amqp.ScanProps(props)
	return wrong == nil && len(props) <= fc.channel.conn.srv.FrameMax-amqp.FrameOverhead-contentHeadSize
}

func (fc *firehoseCopy) encode(p *amqp.Properties) []byte {
	c := fc.channel.conn
	about := amqp.Table{
		{Key: "exchange_name", Value: fc.exchange},
		{Key: "routing_keys", Value: longstrs(fc.keys)},
		{Key: "properties", Value: propertiesTable(p)},
		{Key: "node", Value: c.srv.Node},
	}
	about = append(about, fc.redelivered...)
	about = append(about,
		amqp.Field{Key: "vhost", Value: c.vhost.Name()},
		amqp.Field{Key: "connection", Value: c.peer.name()},
		amqp.Field{Key: "channel", Value: int32(fc.channel.id)},
		amqp.Field{Key: "user", Value: c.user.Name},
	)
	about = append(about, fc.extra...)
	headers := amqp.Properties{Headers: about}
	headers.Set(amqp.PropHeaders)
	return headers.Append(nil)
}

// propertiesTable has properties as the firehose shows them: the last one first, and numbers in 32 bits.
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
