package session

import (
	"regexp"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

func (p *probe) consumeReplies(channel uint16, tag string) {
	p.t.Helper()
	do[*amqp.BasicConsumeOK](p, channel, &amqp.BasicConsume{Queue: replyTo, ConsumerTag: tag, NoAck: true})
}

// request publishes a request and returns its reply-to as the server of requests sees it.
func (p *probe) request(channel uint16) (address string) {
	p.t.Helper()
	p.publish(channel, published{key: "requests", body: "?", props: withReplyTo(replyTo)})
	_, props, _ := p.got(channel, "requests")
	return props.ReplyTo
}

func TestDirectReply(t *testing.T) {
	s := testServer(t)
	p, server := probeOf(t, s, Peer{}).open().channel(1).channel(2), probeOf(t, s, Peer{}).open().channel(1)
	p.queue(1, "requests")
	p.consumeReplies(1, "r")
	address := p.request(1)
	if !strings.HasPrefix(address, replyTo+".") || len(address) < len(replyTo)+23 {
		t.Errorf("got address %q", address)
	}
	if again := p.request(1); again != address {
		t.Errorf("the address changed to %q", again)
	}
	for _, name := range []string{replyTo, address} {
		if m := do[*amqp.QueueDeclareOK](server, 1, &amqp.QueueDeclare{Queue: name, Passive: true}); m.Queue != name || m.MessageCount != 0 || m.ConsumerCount != 1 {
			t.Errorf("got %+v", m)
		}
	}

	do[*amqp.ConfirmSelectOK](server, 1, &amqp.ConfirmSelect{})
	reply := published{key: address, body: "one", mandatory: true, props: withHeaders("k", "v")}
	server.publish(1, reply)
	if got := server.confirms(1); got != "+1" {
		t.Errorf("confirms: got %s", got)
	}
	p.feed(nil)
	m := p.delivered(1, "one")
	if m.ConsumerTag != "r" || m.DeliveryTag != 3 || m.Redelivered || m.Exchange != "" || m.RoutingKey != address {
		t.Errorf("got %+v", m)
	}
	server.publish(1, reply, reply)
	p.feed(nil)
	p.delivers(1, "r4:one r5:one")

	// The address is the channel's: another has none, or its own.
	p.publish(2, published{key: "requests", props: withReplyTo(replyTo)})
	p.closed(2, 406, "PRECONDITION_FAILED - fast reply consumer does not exist")
	p.channel(2).consumeReplies(2, "r")
	if other := p.request(2); other == address || !strings.HasPrefix(other, replyTo+".") {
		t.Errorf("got %q for another channel", other)
	}
	p.send(1, &amqp.BasicConsume{Queue: replyTo, ConsumerTag: "r", NoAck: true}) // RabbitMQ does not mind the tag
	p.closed(1, 406, "PRECONDITION_FAILED - reply consumer already set")

	// The address ends with the channel.
	server.confirms(1)
	server.publish(1, reply)
	expect[*amqp.BasicReturn](server, 1)
	server.content(1)
	server.send(1, &amqp.QueueDeclare{Queue: address, Passive: true})
	if got := server.confirms(1); got != "+4" {
		t.Errorf("confirms: got %s", got)
	}
	server.closed(1, 404, "NOT_FOUND - no queue '"+address+"' in vhost '/'")
	p.conn.Release(p.now)
	if n := len(s.replies.queues); n != 0 {
		t.Errorf("%d reply queues are left", n)
	}
}

func TestDirectReplyEndsWithItsConsumer(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "requests")
	p.consumeReplies(1, "r")
	address := p.request(1)
	do[*amqp.BasicCancelOK](p, 1, &amqp.BasicCancel{ConsumerTag: "r"})
	p.publish(1, published{key: address, mandatory: true})
	expect[*amqp.BasicReturn](p, 1)
	p.content(1)
	p.consumeReplies(1, "r")
	if again := p.request(1); again == address {
		t.Error("the address is the old one")
	}
	p.publish(1, published{key: address, body: "lost"})
	p.silent()
	do[*amqp.BasicCancelOK](p, 1, &amqp.BasicCancel{ConsumerTag: "r"})
	p.publish(1, published{key: "requests", props: withReplyTo(replyTo)})
	p.closed(1, 406, "PRECONDITION_FAILED - fast reply consumer does not exist")
}

// A name that resembles an address, or belongs to another vhost, is not treated as an address. The BCC header is removed and the address set.
func TestDirectReplyAddresses(t *testing.T) {
	s := testServer(t)
	p := probeOf(t, s, Peer{}).open().channel(1)
	p.queue(1, "requests")
	p.consumeReplies(1, "r")
	address := p.request(1)
	for _, key := range []string{replyTo, replyTo + ".x", replyTo + "x"} {
		p.publish(1, published{key: key, mandatory: true})
		expect[*amqp.BasicReturn](p, 1)
		p.content(1)
	}
	if s.replies.find("other", address) != nil {
		t.Error("found from another vhost")
	}
	m := published{key: "requests", props: withHeaders("BCC", amqp.Array{"nowhere"})}
	m.props.ReplyTo = replyTo
	m.props.Set(amqp.PropReplyTo)
	p.publish(1, m)
	if _, props, _ := p.got(1, "requests"); props.ReplyTo != address || len(props.Headers) != 0 {
		t.Errorf("got %+v", props)
	}
	p.publish(1, published{key: address, body: "reply", props: withHeaders("CC", amqp.Array{"requests"})})
	p.delivered(1, "reply")
	p.got(1, "requests")
	do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "requests", Exchange: "amq.topic", RoutingKey: "#"})
	p.publish(1, published{exchange: "amq.topic", key: address})
	p.holds(1, "requests", 1) // only the default exchange leads to reply queues
}

// The address of a reply has RabbitMQ's form: a token, a dot and a key that is different each time. It used to be a single word.
func TestReplyName(t *testing.T) {
	form := regexp.MustCompile(`^amq\.rabbitmq\.reply-to\.([A-Za-z0-9+/]+=*)\.([A-Za-z0-9+/]{22}==)$`)
	p := newProbe(t).open()
	seen := map[string]bool{}
	for id := range uint16(5) {
		p.channel(id + 1)
		p.queue(id+1, "requests")
		p.consumeReplies(id+1, "r")
		address := p.request(id + 1)
		parts := form.FindStringSubmatch(address)
		if parts == nil {
			t.Fatalf("%q has another form", address)
		}
		for _, part := range parts[1:] {
			if seen[part] {
				t.Errorf("%q comes twice", part)
			}
			seen[part] = true
		}
	}
}
