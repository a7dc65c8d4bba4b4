package mgmt

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/probe"
	"github.com/curfewmq/curfew/core/session"
)

// properties are the properties of messages in the order in which they are shown, with pointers to their values.
var properties = [...]struct {
	name  string
	is    amqp.Property
	value func(*amqp.Properties) any
}{
	{"cluster_id", amqp.PropClusterID, func(p *amqp.Properties) any { return &p.ClusterID }},
	{"app_id", amqp.PropAppID, func(p *amqp.Properties) any { return &p.AppID }},
	{"user_id", amqp.PropUserID, func(p *amqp.Properties) any { return &p.UserID }},
	{"type", amqp.PropType, func(p *amqp.Properties) any { return &p.Type }},
	{"timestamp", amqp.PropTimestamp, func(p *amqp.Properties) any { return &p.Timestamp }},
	{"message_id", amqp.PropMessageID, func(p *amqp.Properties) any { return &p.MessageID }},
	{"expiration", amqp.PropExpiration, func(p *amqp.Properties) any { return &p.Expiration }},
	{"reply_to", amqp.PropReplyTo, func(p *amqp.Properties) any { return &p.ReplyTo }},
	{"correlation_id", amqp.PropCorrelationID, func(p *amqp.Properties) any { return &p.CorrelationID }},
	{"priority", amqp.PropPriority, func(p *amqp.Properties) any { return &p.Priority }},
	{"delivery_mode", amqp.PropDeliveryMode, func(p *amqp.Properties) any { return &p.DeliveryMode }},
	{"headers", amqp.PropHeaders, func(p *amqp.Properties) any { return &p.Headers }},
	{"content_encoding", amqp.PropContentEncoding, func(p *amqp.Properties) any { return &p.ContentEncoding }},
	{"content_type", amqp.PropContentType, func(p *amqp.Properties) any { return &p.ContentType }},
}

// readProperties reads the properties of a message. A null property is absent.
func readProperties(r *jsonobj.Reader) (p amqp.Properties) {
	for _, it := range properties {
		if !r.Has(it.name) {
			continue
		}
		p.Set(it.is)
		switch v := it.value(&p).(type) {
		case *string:
			*v = r.Name(it.name)
		case *uint8:
			*v = uint8(r.Uint(it.name, math.MaxUint8))
		case *uint64:
			*v = r.Uint(it.name, 1<<53)
		case *amqp.Table:
			*v = r.Table(it.name)
		}
	}
	return p
}

// showProperties returns the properties of a message. None are an empty list, as in RabbitMQ: rabbitmqadmin has no column for
// an empty object.
func showProperties(raw []byte) (any, error) {
	p, err := amqp.ParseProperties(raw)
	if err != nil {
		return nil, fmt.Errorf("stored properties: %w", err)
	}
	var o object
	for _, it := range properties {
		if !p.Has(it.is) {
			continue
		}
		switch v := it.value(&p).(type) {
		case *string:
			o.Add(it.name, *v)
		case *uint8:
			o.Add(it.name, int(*v))
		case *uint64:
			o.Add(it.name, *v)
		case *amqp.Table:
			o.Add(it.name, jsonobj.OfTable(*v))
		}
	}
	if o == nil {
		return []any{}, nil
	}
	return o, nil
}

// checkPublishers refuses a message while publishers are blocked: HTTP must not be a way around that.
func checkPublishers(c *request) error {
	for _, alarm := range c.api.Alarms() {
		if alarm == probe.Draining {
			c.w.Header().Set("Retry-After", "5")
			return &failure{http.StatusServiceUnavailable, "draining", "publishers wait: the broker is being drained"}
		}
		if alarm == "memory" || alarm == "disk" {
			c.w.Header().Set("Retry-After", "1")
			return &failure{http.StatusServiceUnavailable, "resource_alarm", "publishers wait: the broker is low on " + alarm}
		}
	}
	return nil
}

// publish publishes a message to an exchange and says whether it was routed to any queue.
func publish(c *request) error {
	if err := checkPublishers(c); err != nil {
		return err
	}
	if err := mayWrite(c); err != nil {
		return err
	}
	r := c.jsonBody(c.api.BodyMax)
	r.Need("properties", "routing_key", "payload", "payload_encoding")
	key, body := r.Name("routing_key"), readPayload(r)
	props := readProperties(r.Object("properties"))
	if err := r.Err(); err != nil {
		return err
	}
	return c.direct(func(ctx context.Context, d internalClient) error {
		routed, err := d.send(ctx, c.exchangeName(), key, props.Append(nil), body)
		if err != nil {
			return publishFailure(err)
		}
		return c.reply(object{{"routed", routed}})
	})
}

// mayWrite refuses a message that the user may not publish, before its body is read.
func mayWrite(c *request) error {
	if err := c.mayConnect(); err != nil {
		return err
	}
	err := c.api.users().Check(c.user.Name, auth.Write, auth.Resource{Kind: auth.Exchange, VHost: c.vhost.Name(), Name: c.exchangeName()})
	if err != nil {
		return publishFailure(err)
	}
	return nil
}

// publishFailure returns an error with RabbitMQ's words for this request, which make every error a bad request.
func publishFailure(err error) error {
	e, ok := errors.AsType[*amqp.Error](err)
	if !ok || e.Code == amqp.ReplyInternalError || e.Code == amqp.ReplyConnectionForced {
		return err
	}
	return &failure{http.StatusBadRequest, "bad_request", strconv.Itoa(int(e.Code)) + " " + e.Error()}
}

// readPayload reads the body of the message to publish.
func readPayload(r *jsonobj.Reader) []byte {
	payload := r.Text("payload")
	switch encoding := r.Text("payload_encoding"); encoding {
	case "string":
		return []byte(payload)
	case "base64":
		b, err := base64.StdEncoding.DecodeString(payload)
		if err != nil {
			r.Fail(jsonobj.Pair("not_base64", payload[:min(len(payload), 100)]))
		}
		return b
	default:
		r.Fail(jsonobj.Pair("unsupported_encoding", encoding))
		return nil
	}
}

// fetching says which messages of a queue a client wants, and how.
type fetching struct {
	count    int64
	mode     ackMode
	base64   bool
	truncate int // bytes of a body that are shown; negative = all
}

// ackMode is how fetched messages are settled.
type ackMode string

const (
	ackRequeue    ackMode = "ack_requeue_true"
	ackDrop       ackMode = "ack_requeue_false"
	rejectRequeue ackMode = "reject_requeue_true"
	rejectDrop    ackMode = "reject_requeue_false"
)

// maxFetched limits the memory, in bytes, for showing the messages that one request fetches. A limit on bodies alone would not do: a
// request may ask for millions of messages without their bodies.
const maxFetched = 64 << 20

// shownSize estimates the memory for showing a message and a part of its body. Headers take many times more memory as JSON than in the
// message, where a field may have two bytes.
func shownSize(props, part []byte) int { return 1<<10 + 16*len(props) + len(part) }

func readFetching(r *jsonobj.Reader) fetching {
	r.Need("count", "ackmode", "encoding")
	q := fetching{count: r.Int("count"), mode: ackMode(r.Text("ackmode")), truncate: -1}
	switch q.mode {
	case ackRequeue, ackDrop, rejectRequeue, rejectDrop:
	default:
		r.Fail(badRequest("ackmode %q: %s, %s, %s and %s are known", string(q.mode), ackRequeue, ackDrop, rejectRequeue, rejectDrop))
	}
	encoding := r.Text("encoding")
	if encoding != "auto" && encoding != "base64" {
		r.Fail(badRequest("Unsupported encoding. Please use auto or base64."))
	}
	q.base64 = encoding == "base64"
	if r.Has("truncate") {
		q.truncate = int(min(max(r.Int("truncate"), 0), maxFetched))
	}
	return q
}

// fetch shows messages of a queue, and requeues them or not.
func fetch(c *request) error {
	if err := c.mayConnect(); err != nil {
		return err
	}
	r := c.body()
	q := readFetching(r)
	if err := r.Err(); err != nil {
		return err
	}
	return c.direct(func(ctx context.Context, d internalClient) error {
		all, err := d.fetch(ctx, c.vars["queue"], &q)
		if err != nil {
			return fetchFailure(err)
		}
		return listObjects(c, all)
	})
}

// fetchFailure returns an error with RabbitMQ's words for this request, which begin with the name of its code.
func fetchFailure(err error) error {
	f := failureOf(err)
	if e, ok := errors.AsType[*amqp.Error](err); ok && f != nil && f.status < http.StatusInternalServerError {
		return &failure{f.status, f.code, e.Error()}
	}
	return err
}

// fetch gets messages, up to maxFetched. It requeues them only after the last one: otherwise it would get the first one again and again.
// Messages that the queue has removed are returned even if the next one cannot be got: the client would never see them.
func (d internalClient) fetch(ctx context.Context, queue string, q *fetching) ([]object, error) {
	if err := jsonobj.CheckName("queue", queue); err != nil {
		return nil, err
	}
	all := []object{}
	var tags []uint64
	for shown := 0; int64(len(all)) < q.count && shown < maxFetched; {
		r, err := d.Call(ctx, &amqp.BasicGet{Queue: queue, NoAck: q.mode == ackDrop})
		if err != nil && q.mode == ackDrop && len(all) > 0 {
			break
		}
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

// settle settles fetched messages.
func (d internalClient) settle(mode ackMode, tags []uint64) {
	switch {
	case mode == ackDrop || len(tags) == 0:
	case mode == ackRequeue:
		d.Send(&amqp.BasicNack{Multiple: true, Requeue: true}) // all of them
	default:
		for _, tag := range tags {
			d.Send(&amqp.BasicReject{DeliveryTag: tag, Requeue: mode == rejectRequeue})
		}
	}
}

// part returns the part of a body that is shown. It does not cut text within a character.
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

// payload returns the part of a body that is shown, and its encoding.
func (q *fetching) payload(body []byte) (payload, encoding string) {
	part := q.part(body)
	if q.base64 || !utf8.Valid(part) {
		return base64.StdEncoding.EncodeToString(part), "base64"
	}
	return string(part), "string"
}

// message returns a message as an object, and adds to shown about how much memory that takes.
func (q *fetching) message(m *amqp.BasicGetOK, props, body []byte, shown *int) (object, error) {
	p, err := showProperties(props)
	if err != nil {
		return nil, err
	}
	*shown += shownSize(props, q.part(body))
	payload, encoding := q.payload(body)
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

// internalClient is an AMQP connection of the user's inside the broker. Handlers use it for actions that clients could do over AMQP, and so
// have the same permissions, limits and error texts.
type internalClient struct{ *session.Direct }

// operationTimeout is how long a request waits for the broker to do something.
const operationTimeout = 25 * time.Second

// direct opens a connection for the user to the vhost that the path names, for as long as fn runs. As over AMQP, the tag
// administrator is not enough: the user needs permissions there.
func (c *request) direct(fn func(ctx context.Context, d internalClient) error) error {
	if err := c.mayConnect(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), operationTimeout)
	defer cancel()
	d := c.api.AMQP.Sessions().Direct(c.user, c.vhost, c.api.Clock)
	defer d.Close()
	return fn(ctx, internalClient{d})
}

// mayConnect refuses a user that direct would refuse. Handlers that read a body call it before.
func (c *request) mayConnect() error {
	if c.api.users().OpenVHost(c.user.Name, c.vhost.Name()) != nil {
		return notAuthorised("User not authorised to access virtual host")
	}
	return nil
}

func (c *request) ask(m amqp.Method) error {
	return c.direct(func(ctx context.Context, d internalClient) error {
		_, err := d.Call(ctx, m)
		return err
	})
}

// send publishes a message and waits for the confirm. It reports whether the message was routed to any queue.
func (d internalClient) send(ctx context.Context, exchange, key string, props, body []byte) (routed bool, err error) {
	if _, err := d.Call(ctx, &amqp.ConfirmSelect{}); err != nil {
		return false, err
	}
	d.Publish(&amqp.BasicPublish{Exchange: exchange, RoutingKey: key, Mandatory: true}, props, body)
	routed = true
	for {
		r, err := d.Next(ctx)
		if err != nil {
			return false, err
		}
		switch r.Method.(type) {
		case *amqp.BasicReturn:
			routed = false
		case *amqp.BasicAck:
			return routed, nil
		case *amqp.BasicNack:
			return false, badRequest("rejected")
		default:
			return false, fmt.Errorf("publish: answered by %s", r.Method.Name())
		}
	}
}
