package mgmt

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/curfewmq/curfew/core/amqp"
)

// properties reads the properties of a message.
func (f fields) properties() (p amqp.Properties, err error) {
	texts := map[string]struct {
		to *string
		is amqp.Property
	}{
		"content_type":     {&p.ContentType, amqp.PropContentType},
		"content_encoding": {&p.ContentEncoding, amqp.PropContentEncoding},
		"correlation_id":   {&p.CorrelationID, amqp.PropCorrelationID},
		"reply_to":         {&p.ReplyTo, amqp.PropReplyTo},
		"expiration":       {&p.Expiration, amqp.PropExpiration},
		"message_id":       {&p.MessageID, amqp.PropMessageID},
		"type":             {&p.Type, amqp.PropType},
		"user_id":          {&p.UserID, amqp.PropUserID},
		"app_id":           {&p.AppID, amqp.PropAppID},
		"cluster_id":       {&p.ClusterID, amqp.PropClusterID},
	}
	for name, v := range f {
		if t, ok := texts[name]; ok && v != nil {
			if *t.to, err = f.name(name); err != nil {
				return p, err
			}
			p.Set(t.is)
		}
	}
	return p, f.otherProperties(&p)
}

// otherProperties reads those that are not strings.
func (f fields) otherProperties(p *amqp.Properties) error {
	mode, given, err := f.number("delivery_mode", 255)
	if err != nil {
		return err
	}
	if given {
		p.DeliveryMode = uint8(mode)
		p.Set(amqp.PropDeliveryMode)
	}
	priority, given, err := f.number("priority", 255)
	if err != nil {
		return err
	}
	if given {
		p.Priority = uint8(priority)
		p.Set(amqp.PropPriority)
	}
	if p.Timestamp, given, err = f.number("timestamp", 1<<53); err != nil {
		return err
	}
	if given {
		p.Set(amqp.PropTimestamp)
	}
	if f["headers"] == nil {
		return nil
	}
	headers, err := f.object("headers")
	if err != nil {
		return err
	}
	p.Set(amqp.PropHeaders)
	p.Headers, err = headers.table()
	return err
}

// number returns a property that is a number up to most.
func (f fields) number(key string, most uint64) (n uint64, given bool, err error) {
	v, ok := f[key]
	if !ok || v == nil {
		return 0, false, nil
	}
	number, ok := v.(json.Number)
	if !ok {
		return 0, false, badTerm("not_int", key)
	}
	n, err = strconv.ParseUint(number.String(), 10, 64)
	if err != nil || n > most {
		return 0, false, badRequest("%s is %s: 0 to %d are allowed", key, number, most)
	}
	return n, true, nil
}

// propertiesOf shows the properties of a message. None are an empty list, as in RabbitMQ: rabbitmqadmin has no column for an
// empty object.
func propertiesOf(raw []byte) (any, error) {
	o, err := propertiesObject(raw)
	if len(o) == 0 {
		return []any{}, err
	}
	return o, err
}

func propertiesObject(raw []byte) (object, error) {
	p, err := amqp.ParseProperties(raw)
	if err != nil {
		return nil, fmt.Errorf("stored properties: %w", err)
	}
	o := object{}
	for _, it := range []struct {
		is    amqp.Property
		name  string
		value any
	}{
		{amqp.PropClusterID, "cluster_id", p.ClusterID},
		{amqp.PropAppID, "app_id", p.AppID},
		{amqp.PropUserID, "user_id", p.UserID},
		{amqp.PropType, "type", p.Type},
		{amqp.PropTimestamp, "timestamp", p.Timestamp},
		{amqp.PropMessageID, "message_id", p.MessageID},
		{amqp.PropExpiration, "expiration", p.Expiration},
		{amqp.PropReplyTo, "reply_to", p.ReplyTo},
		{amqp.PropCorrelationID, "correlation_id", p.CorrelationID},
		{amqp.PropPriority, "priority", int(p.Priority)},
		{amqp.PropDeliveryMode, "delivery_mode", int(p.DeliveryMode)},
		{amqp.PropHeaders, "headers", tableObject(p.Headers)},
		{amqp.PropContentEncoding, "content_encoding", p.ContentEncoding},
		{amqp.PropContentType, "content_type", p.ContentType},
	} {
		if p.Has(it.is) {
			o.add(it.name, it.value)
		}
	}
	return o, nil
}

// room refuses to take a message while publishers wait: they would not be publishers' limits if there were another way in.
func (c *request) room() error {
	for _, alarm := range c.api.Alarms() {
		if alarm == "memory" || alarm == "disk" {
			c.w.Header().Set("Retry-After", "1")
			return &failure{http.StatusServiceUnavailable, "resource_alarm", "publishers wait: the broker is low on " + alarm}
		}
	}
	return nil
}

// publish sends a message to an exchange and says whether it went to any queue.
func (a *API) publish(c *request) error {
	if err := c.room(); err != nil {
		return err
	}
	b, err := c.read(a.BodyMax)
	if err != nil {
		return err
	}
	f, err := parseObject(b)
	if err != nil {
		return err
	}
	if err := f.need("properties", "routing_key", "payload", "payload_encoding"); err != nil {
		return err
	}
	key, err := f.name("routing_key")
	if err != nil {
		return err
	}
	body, err := f.payload()
	if err != nil {
		return err
	}
	props, err := f.object("properties")
	if err != nil {
		return err
	}
	p, err := props.properties()
	if err != nil {
		return err
	}
	return c.direct(func(ctx context.Context, d internalClient) error {
		routed, err := d.send(ctx, c.exchangeName(), key, p.Append(nil), body)
		if err != nil {
			return publishFailure(err)
		}
		return c.reply(object{{"routed", routed}})
	})
}

// publishFailure words an error as RabbitMQ does here: whatever it is, the message was a bad request.
func publishFailure(err error) error {
	e, ok := errors.AsType[*amqp.Error](err)
	if !ok || e.Code == amqp.ReplyInternalError {
		return err
	}
	return &failure{http.StatusBadRequest, "bad_request", strconv.Itoa(int(e.Code)) + " " + e.Error()}
}

// payload is the body of the message that is to be published.
func (f fields) payload() ([]byte, error) {
	payload, err := f.text("payload")
	if err != nil {
		return nil, err
	}
	encoding, err := f.text("payload_encoding")
	if err != nil {
		return nil, err
	}
	switch encoding {
	case "string":
		return []byte(payload), nil
	case "base64":
		b, err := base64.StdEncoding.DecodeString(payload)
		if err != nil {
			return nil, badTerm("not_base64", payload[:min(len(payload), 100)])
		}
		return b, nil
	}
	return nil, badTerm("unsupported_encoding", encoding)
}

// fetching is what somebody wants of a queue's messages.
type fetching struct {
	count    int64
	mode     ackMode
	base64   bool
	truncate int // bytes of a body that are shown; negative = all
}

// ackMode is what becomes of messages that were fetched.
type ackMode string

const (
	ackRequeue    ackMode = "ack_requeue_true"
	ackAway       ackMode = "ack_requeue_false"
	rejectRequeue ackMode = "reject_requeue_true"
	rejectAway    ackMode = "reject_requeue_false"
)

// maxFetched bounds what one request fetches: about how many bytes it takes in memory to be shown. There may be millions of messages
// that show nothing of their bodies.
const maxFetched = 64 << 20

// shownSize is about how much memory it takes to show a message, of whose body so much is shown. A field of a header, which takes
// no more than two bytes in a message, takes many times that as JSON.
func shownSize(props, part []byte) int { return 1<<10 + 16*len(props) + len(part) }

func (f fields) fetching() (q fetching, err error) {
	if err := f.need("count", "ackmode", "encoding"); err != nil {
		return q, err
	}
	if q.count, err = f.whole("count"); err != nil {
		return q, err
	}
	mode, err := f.text("ackmode")
	if err != nil {
		return q, err
	}
	switch q.mode = ackMode(mode); q.mode {
	case ackRequeue, ackAway, rejectRequeue, rejectAway:
	default:
		return q, badRequest("ackmode %q: %s, %s, %s and %s are known", mode, ackRequeue, ackAway, rejectRequeue, rejectAway)
	}
	encoding, err := f.text("encoding")
	if err != nil {
		return q, err
	}
	if encoding != "auto" && encoding != "base64" {
		return q, badRequest("Unsupported encoding. Please use auto or base64.")
	}
	q.base64 = encoding == "base64"
	q.truncate = -1
	if f["truncate"] == nil {
		return q, nil
	}
	n, err := f.whole("truncate")
	q.truncate = int(min(max(n, 0), maxFetched))
	return q, err
}

// fetch shows messages of a queue, and puts them back or not.
func (*API) fetch(c *request) error {
	f, err := c.body()
	if err != nil {
		return err
	}
	q, err := f.fetching()
	if err != nil {
		return err
	}
	return c.direct(func(ctx context.Context, d internalClient) error {
		all, err := d.fetch(ctx, c.vars["queue"], &q)
		if err != nil {
			return fetchFailure(err)
		}
		return list(c, listing[object]{items: all, object: itself})
	})
}

// fetchFailure words an error as RabbitMQ does here, with the name of its code.
func fetchFailure(err error) error {
	f := failureOf(err)
	if e, ok := errors.AsType[*amqp.Error](err); ok && f != nil {
		return &failure{f.status, f.code, e.Error()}
	}
	return err
}

// fetch gets messages, as many as there are and as is sensible to have in memory. Those that are to go back do so when all
// have been fetched: otherwise the first would come again and again.
func (d internalClient) fetch(ctx context.Context, queue string, q *fetching) ([]object, error) {
	if err := checkName("queue", queue); err != nil {
		return nil, err
	}
	all := []object{}
	var tags []uint64
	for shown := 0; int64(len(all)) < q.count && shown < maxFetched; {
		r, err := d.Call(ctx, &amqp.BasicGet{Queue: queue, NoAck: q.mode == ackAway})
		if err != nil {
			return nil, err
		}
		got, ok := r.Method.(*amqp.BasicGetOK)
		if !ok {
			break
		}
		o, err := q.message(got, r.Props, r.Body, &shown)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
		tags = append(tags, got.DeliveryTag)
	}
	d.settle(q.mode, tags)
	return all, nil
}

// settle says what is to become of messages that were fetched.
func (d internalClient) settle(mode ackMode, tags []uint64) {
	switch {
	case mode == ackAway || len(tags) == 0:
	case mode == ackRequeue:
		d.Send(&amqp.BasicNack{Multiple: true, Requeue: true}) // all of them
	default:
		for _, tag := range tags {
			d.Send(&amqp.BasicReject{DeliveryTag: tag, Requeue: mode == rejectRequeue})
		}
	}
}

// part is what is shown of a body. Text is not cut within a character.
func (q *fetching) part(body []byte) []byte {
	if q.truncate < 0 || q.truncate >= len(body) {
		return body
	}
	n := q.truncate
	for back := n; back > 0 && back > n-utf8.UTFMax && utf8.Valid(body); back-- {
		if utf8.RuneStart(body[back]) {
			return body[:back]
		}
	}
	return body[:n]
}

// message shows a message, and adds to shown about how much memory that takes.
func (q *fetching) message(m *amqp.BasicGetOK, props, body []byte, shown *int) (object, error) {
	p, err := propertiesOf(props)
	if err != nil {
		return nil, err
	}
	part := q.part(body)
	*shown += shownSize(props, part)
	payload, encoding := string(part), "string"
	if q.base64 || !utf8.Valid(part) {
		payload, encoding = base64.StdEncoding.EncodeToString(part), "base64"
	}
	return object{
		{"payload_bytes", len(body)},
		{"redelivered", m.Redelivered},
		{"exchange", m.Exchange},
		{"routing_key", m.RoutingKey},
		{"message_count", int(m.MessageCount)},
		{"properties", p},
		{"payload", payload},
		{"payload_encoding", encoding},
	}, nil
}
