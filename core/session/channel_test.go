package session

import (
	"bytes"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

// published is a message that is published or delivered.
type published struct {
	exchange, key string
	mandatory     bool
	props         amqp.Properties
	body          string
}

// frames returns the message as a publisher sends it.
func (m published) frames(channel uint16) []byte {
	b := amqp.AppendMethod(nil, channel, &amqp.BasicPublish{Exchange: m.exchange, RoutingKey: m.key, Mandatory: m.mandatory})
	b = amqp.AppendContentHeader(b, channel, uint64(len(m.body)), m.props.Append(nil))
	return amqp.AppendBody(b, channel, []byte(m.body), 131072)
}

func (p *probe) publish(channel uint16, ms ...published) {
	p.t.Helper()
	var b []byte
	for _, m := range ms {
		b = append(b, m.frames(channel)...)
	}
	p.feed(b)
}

// content returns the properties and body that follow a method.
func (p *probe) content(channel uint16) (props amqp.Properties, body string) {
	p.t.Helper()
	f, ok := p.frame()
	if !ok || f.Type != amqp.FrameHeader || f.Channel != channel {
		p.t.Fatalf("got frame %+v, want a content header on channel %d", f, channel)
	}
	h, err := amqp.ParseContentHeader(f.Payload)
	if err != nil {
		p.t.Fatal(err)
	}
	if props, err = amqp.ParseProperties(h.Props); err != nil {
		p.t.Fatal(err)
	}
	var b bytes.Buffer
	for uint64(b.Len()) < h.BodySize {
		f, ok := p.frame()
		if !ok || f.Type != amqp.FrameBody || f.Channel != channel {
			p.t.Fatalf("got frame %+v, want a body on channel %d", f, channel)
		}
		b.Write(f.Payload)
	}
	return props, b.String()
}

// delivered expects a delivery with this body.
func (p *probe) delivered(channel uint16, body string) *amqp.BasicDeliver {
	p.t.Helper()
	m := expect[*amqp.BasicDeliver](p, channel)
	if _, got := p.content(channel); got != body {
		p.t.Errorf("delivered body: got %q, want %q", got, body)
	}
	return m
}

// do sends a method and expects an answer of type M.
func do[M amqp.Method](p *probe, channel uint16, m amqp.Method) M {
	p.t.Helper()
	p.send(channel, m)
	return expect[M](p, channel)
}

// closed expects channel.close with this text, and answers it.
func (p *probe) closed(channel uint16, code uint16, text string) *amqp.ChannelClose {
	p.t.Helper()
	m := expect[*amqp.ChannelClose](p, channel)
	if m.ReplyCode != code || m.ReplyText != text {
		p.t.Errorf("channel.close:\n got %d %s\nwant %d %s", m.ReplyCode, m.ReplyText, code, text)
	}
	p.send(channel, &amqp.ChannelCloseOK{})
	return m
}

func (p *probe) queue(channel uint16, name string, args ...any) {
	p.t.Helper()
	do[*amqp.QueueDeclareOK](p, channel, &amqp.QueueDeclare{Queue: name, Arguments: table(args...)})
}

// table makes a table of keys and values in turn.
func table(args ...any) (t amqp.Table) {
	for i := 0; i < len(args); i += 2 {
		t = append(t, amqp.Field{Key: args[i].(string), Value: args[i+1]})
	}
	return t
}

func TestPublishAndConsume(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "q")
	props := amqp.Properties{ContentType: "text/plain", Headers: table("k", int32(1)), DeliveryMode: 2}
	props.Set(amqp.PropContentType, amqp.PropHeaders, amqp.PropDeliveryMode)
	p.publish(1, published{key: "q", body: "one", props: props}, published{key: "q", body: ""})
	p.silent()
	do[*amqp.BasicConsumeOK](p, 1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c"})
	m := expect[*amqp.BasicDeliver](p, 1)
	if m.ConsumerTag != "c" || m.DeliveryTag != 1 || m.Redelivered || m.Exchange != "" || m.RoutingKey != "q" {
		t.Errorf("got %+v", m)
	}
	got, body := p.content(1)
	if body != "one" || got.ContentType != "text/plain" || got.DeliveryMode != 2 || len(got.Headers) != 1 {
		t.Errorf("got %q with %+v", body, got)
	}
	if m := p.delivered(1, ""); m.DeliveryTag != 2 {
		t.Errorf("got tag %d, want 2", m.DeliveryTag)
	}
	p.send(1, &amqp.BasicAck{DeliveryTag: 2, Multiple: true})
	p.silent()
	if m := do[*amqp.QueueDeclareOK](p, 1, &amqp.QueueDeclare{Queue: "q", Passive: true}); m.MessageCount != 0 || m.ConsumerCount != 1 {
		t.Errorf("got %+v", m)
	}
}
