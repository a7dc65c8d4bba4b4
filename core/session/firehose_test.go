package session

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/vhost"
)

// trace switches the firehose of the vhost on or off.
func (p *probe) trace(on bool) {
	p.t.Helper()
	if err := p.conn.vhost.SetMetadata(vhost.Metadata{Tracing: on}); err != nil {
		p.t.Fatal(err)
	}
}

// firehose is a probe with queues in a traced vhost. The copies go to the queue "trace".
func firehose(t *testing.T) *probe {
	t.Helper()
	p := probeOf(t, testServer(t, func(o *Options) { o.Node = "curfew@here" }), Peer{Address: "192.0.2.1:4711", Local: "192.0.2.2:5672"})
	p.open().channel(1).channel(2).channel(9)
	for _, name := range []string{"q1", "q2", "trace"} {
		p.queue(9, name)
	}
	do[*amqp.QueueBindOK](p, 9, &amqp.QueueBind{Queue: "q2", Exchange: "amq.direct", RoutingKey: "k"})
	do[*amqp.QueueBindOK](p, 9, &amqp.QueueBind{Queue: "q1", Exchange: "amq.direct", RoutingKey: "k"})
	do[*amqp.QueueBindOK](p, 9, &amqp.QueueBind{Queue: "trace", Exchange: "amq.rabbitmq.trace", RoutingKey: "#"})
	p.trace(true)
	return p
}

// copies takes the copies from the queue: the key, the body, and the headers as text.
func (p *probe) copies() []string {
	p.t.Helper()
	var all []string
	for {
		p.send(9, &amqp.BasicGet{Queue: "trace", NoAck: true})
		_, m := p.method()
		got, ok := m.(*amqp.BasicGetOK)
		if !ok {
			return all
		}
		props, body := p.content(9)
		if props.Flags != amqp.PropHeaders.Flag() || got.Exchange != "amq.rabbitmq.trace" {
			p.t.Errorf("a copy has properties %+v, comes from exchange %q", props, got.Exchange)
		}
		all = append(all, fmt.Sprintf("%s %q %s", got.RoutingKey, body, typed(props.Headers)))
	}
}

// typed formats a table with the types of its values.
func typed(v any) string {
	var parts []string
	switch v := v.(type) {
	case amqp.Table:
		for _, f := range v {
			parts = append(parts, f.Key+"="+typed(f.Value))
		}
		return "{" + strings.Join(parts, " ") + "}"
	case amqp.Array:
		for _, it := range v {
			parts = append(parts, typed(it))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case string:
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprintf("%s:%v", amqp.TypeName(v), v)
}

const (
	client = `vhost="/" connection="192.0.2.1:4711 -> 192.0.2.2:5672" channel=`
	plainK = `exchange_name="amq.direct" routing_keys=["k"] properties={} node="curfew@here" `
)

// secretName is the name of a reply queue, which is different each time.
var secretName = regexp.MustCompile(`amq\.rabbitmq\.reply-to\.[\w+/=.]+`)

// All messages that are published, delivered and fetched in a traced vhost are copied to amq.rabbitmq.trace exactly as by RabbitMQ 3.10,
// including the order of the headers. Tracing could once be switched on without any message being copied.
func TestFirehose(t *testing.T) {
	p := firehose(t)
	all := amqp.Properties{
		ContentType: "text/plain", ContentEncoding: "utf8", Headers: amqp.Table{{Key: "a", Value: int32(7)}, {Key: "b", Value: "x"}},
		DeliveryMode: 2, Priority: 5, CorrelationID: "corr", ReplyTo: "reply", Expiration: "60000", MessageID: "mid",
		Timestamp: 5_000_000_000, Type: "typ", UserID: "guest", AppID: "app", ClusterID: "clu", Flags: 0xFFFC,
	}
	full := `exchange_name="amq.direct" routing_keys=["k"] properties={cluster_id="clu" app_id="app" user_id="guest" type="typ" ` +
		`timestamp=signedint:705032704 message_id="mid" expiration="60000" reply_to="reply" correlation_id="corr" priority=signedint:5 ` +
		`delivery_mode=signedint:2 headers={a=signedint:7 b="x"} content_encoding="utf8" content_type="text/plain"} node="curfew@here" `
	copied := amqp.Properties{Headers: amqp.Table{{Key: "CC", Value: amqp.Array{"q1"}}, {Key: "BCC", Value: amqp.Array{"q2"}}}}
	copied.Set(amqp.PropHeaders)
	replies := amqp.Properties{}

	steps := []struct {
		name string
		do   func()
		want []string
	}{
		{"published", func() { p.publish(1, published{exchange: "amq.direct", key: "k", body: "one", props: all}) }, []string{
			`publish.amq.direct "one" {` + full + client + `signedint:1 user="guest" routed_queues=["q1" "q2"]}`,
		}},
		{"fetched, given back and fetched", func() {
			p.send(2, &amqp.BasicGet{Queue: "q1"}, &amqp.BasicNack{DeliveryTag: 1, Requeue: true}, &amqp.BasicGet{Queue: "q1", NoAck: true}, &amqp.BasicGet{Queue: "q2", NoAck: true})
		}, []string{
			`deliver.q1 "one" {` + full + `redelivered=signedint:0 ` + client + `signedint:2 user="guest"}`,
			`deliver.q1 "one" {` + full + `redelivered=signedint:1 ` + client + `signedint:2 user="guest"}`,
			`deliver.q2 "one" {` + full + `redelivered=signedint:0 ` + client + `signedint:2 user="guest"}`,
		}},
		{"delivered", func() {
			p.publish(1, published{exchange: "amq.direct", key: "k", body: "two"})
			p.send(2, &amqp.BasicConsume{Queue: "q2", ConsumerTag: "c", NoAck: true}, &amqp.BasicCancel{ConsumerTag: "c"}, &amqp.QueuePurge{Queue: "q1"})
		}, []string{
			`publish.amq.direct "two" {` + plainK + client + `signedint:1 user="guest" routed_queues=["q1" "q2"]}`,
			`deliver.q2 "two" {` + plainK + `redelivered=signedint:0 ` + client + `signedint:2 user="guest"}`,
		}},
		{"without a queue", func() {
			p.publish(1, published{key: "nowhere", body: "three"}, published{exchange: "amq.fanout", key: "nowhere"})
		}, []string{
			`publish. "three" {exchange_name="" routing_keys=["nowhere"] properties={} node="curfew@here" ` + client + `signedint:1 user="guest" routed_queues=["nowhere"]}`,
			`publish.amq.fanout "" {exchange_name="amq.fanout" routing_keys=["nowhere"] properties={} node="curfew@here" ` + client + `signedint:1 user="guest" routed_queues=[]}`,
		}},
		{"with more keys", func() { p.publish(1, published{key: "q1", body: "five", props: copied}) }, []string{
			`publish. "five" {exchange_name="" routing_keys=["q1" "q1" "q2"] properties={headers={CC=["q1"]}} node="curfew@here" ` + client + `signedint:1 user="guest" routed_queues=["q1" "q2"]}`,
		}},
		{"in a transaction that is rolled back", func() {
			p.send(2, &amqp.TxSelect{})
			p.publish(2, published{key: "q1", body: "six"})
			p.send(2, &amqp.TxRollback{})
		}, []string{
			`publish. "six" {exchange_name="" routing_keys=["q1"] properties={} node="curfew@here" ` + client + `signedint:2 user="guest" routed_queues=["q1"]}`,
		}},
		{"a direct reply", func() {
			p.send(2, &amqp.BasicConsume{Queue: replyTo, ConsumerTag: "r", NoAck: true})
			name := p.conn.channels.at(2).reply.queue().Config().Name
			p.publish(1, published{key: name, body: "seven", props: replies})
			p.send(2, &amqp.BasicCancel{ConsumerTag: "r"})
		}, []string{
			`publish. "seven" {exchange_name="" routing_keys=["*"] properties={} node="curfew@here" ` + client + `signedint:1 user="guest" routed_queues=[]}`,
		}},
		{"untraced", func() {
			p.trace(false)
			p.publish(1, published{exchange: "amq.direct", key: "k", body: "eight"})
			p.send(2, &amqp.BasicGet{Queue: "q2", NoAck: true})
		}, nil},
	}
	for _, step := range steps {
		step.do()
		p.out = nil
		got := p.copies()
		for i := range got {
			got[i] = secretName.ReplaceAllString(got[i], "*")
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("%s:\n got %s\nwant %s", step.name, strings.Join(got, "\n     "), strings.Join(step.want, "\n     "))
		}
	}
}

// If the headers of a message fill a frame, its copy omits them.
func TestFirehoseOfLargeHeaders(t *testing.T) {
	p := firehose(t)
	m := published{key: "q1", body: "large", props: withHeaders("large", strings.Repeat("x", 130_900))}
	m.props.AppID = "app"
	m.props.Set(amqp.PropAppID)
	p.publish(1, m)
	want := `publish. "large" {exchange_name="" routing_keys=["q1"] properties={app_id="app"} node="curfew@here" ` +
		client + `signedint:1 user="guest" routed_queues=["q1"]}`
	if got := p.copies(); !slices.Equal(got, []string{want}) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The key of a copy is cut to the maximum length of a key.
func TestFirehoseOfLongName(t *testing.T) {
	p := firehose(t)
	long := strings.Repeat("q", 255)
	p.queue(1, long)
	p.publish(1, published{key: long})
	p.send(1, &amqp.BasicGet{Queue: long, NoAck: true})
	p.out = nil
	got := p.copies()
	if len(got) != 2 || !strings.HasPrefix(got[1], "deliver."+long[:247]+` "`) {
		t.Errorf("got %s", got)
	}
}

// Headers at the maximum nesting depth were nested deeper in the copy, as a table in a table, and no client could read it.
func TestFirehoseCopiesDeepHeaders(t *testing.T) {
	p := firehose(t)
	deepest := amqp.Table{}
	for range amqp.MaxTableDepth - 1 {
		deepest = amqp.Table{{Key: "t", Value: deepest}}
	}
	props := amqp.Properties{Headers: deepest, MessageID: "m"}
	props.Set(amqp.PropHeaders)
	props.Set(amqp.PropMessageID)
	p.publish(1, published{exchange: "amq.direct", key: "k", body: "x", props: props})
	got := p.copies()
	if want := `publish.amq.direct "x" {exchange_name="amq.direct" routing_keys=["k"] properties={message_id="m"} node="curfew@here" ` +
		client + `signedint:1 user="guest" routed_queues=["q1" "q2"]}`; len(got) != 1 || got[0] != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A message to so many queues that their names did not fit into a frame had a copy that could not be delivered.
func TestFirehoseOfManyQueues(t *testing.T) {
	p := firehose(t)
	for i := range 700 {
		name := fmt.Sprintf("%0200d", i)
		p.queue(9, name)
		do[*amqp.QueueBindOK](p, 9, &amqp.QueueBind{Queue: name, Exchange: "amq.fanout"})
	}
	p.publish(1, published{exchange: "amq.fanout", key: "k", body: "x"})
	want := `publish.amq.fanout "x" {exchange_name="amq.fanout" routing_keys=["k"] properties={} node="curfew@here" ` + client + `signedint:1 user="guest"}`
	if got := p.copies(); !slices.Equal(got, []string{want}) {
		t.Errorf("got %.300s, want %s", got, want)
	}
}
