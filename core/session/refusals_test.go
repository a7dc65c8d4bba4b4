package session

import (
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

func withExpiration(s string) amqp.Properties {
	p := amqp.Properties{Expiration: s}
	p.Set(amqp.PropExpiration)
	return p
}

func withHeaders(args ...any) amqp.Properties {
	p := amqp.Properties{Headers: table(args...)}
	p.Set(amqp.PropHeaders)
	return p
}

func withUserID(s string) amqp.Properties {
	p := amqp.Properties{UserID: s}
	p.Set(amqp.PropUserID)
	return p
}

// with returns p with another property, encoded as in p.
func with(p amqp.Properties, more amqp.Property) amqp.Properties {
	p.Set(more)
	return p
}

func withReplyTo(s string) amqp.Properties {
	p := amqp.Properties{ReplyTo: s}
	p.Set(amqp.PropReplyTo)
	return p
}

// Requests that a channel refuses get RabbitMQ's texts. The queue q exists and is empty, r has a message, c has the consumer "c", and
// the exchange in is internal.
func TestRefusals(t *testing.T) {
	const missing = "NOT_FOUND - no queue 'nope' in vhost '/'"
	const missingExchange = "NOT_FOUND - no exchange 'nope' in vhost '/'"
	const onDefault = "ACCESS_REFUSED - operation not permitted on the default exchange"
	const noneDeclared = "NOT_FOUND - no previously declared queue"
	const exclusive = "ACCESS_REFUSED - queue 'c' in vhost '/' in exclusive use"
	tests := []struct {
		name string
		do   any // a method, or a message to publish
		code uint16
		text string
	}{
		{"flow off", &amqp.ChannelFlow{}, 540, "NOT_IMPLEMENTED - active=false"},
		{"second open", &amqp.ChannelOpen{}, 504, "CHANNEL_ERROR - second 'channel.open' seen"},
		{"close-ok unasked", &amqp.ChannelCloseOK{}, 503, "COMMAND_INVALID - unimplemented method"},
		{"answer", &amqp.QueueDeclareOK{}, 503, "COMMAND_INVALID - unimplemented method"},
		{"deliver", &amqp.BasicDeliver{}, 503, "COMMAND_INVALID - unimplemented method"},
		{"connection method", &amqp.ConnectionCloseOK{}, 503, "COMMAND_INVALID - unimplemented method"},

		{"exchange missing", &amqp.ExchangeDeclare{Exchange: "nope", Passive: true}, 404, missingExchange},
		{"default exchange passive", &amqp.ExchangeDeclare{Passive: true}, 403, onDefault},
		{"default exchange", &amqp.ExchangeDeclare{Type: "direct"}, 403, onDefault},
		{"exchange type", &amqp.ExchangeDeclare{Exchange: "x", Type: "nope"}, 406, "PRECONDITION_FAILED - unknown exchange type 'nope'"},
		{"exchange name", &amqp.ExchangeDeclare{Exchange: "amq.x", Type: "direct"}, 403, "ACCESS_REFUSED - exchange name 'amq.x' contains reserved prefix 'amq.*'"},
		{"exchange differs", &amqp.ExchangeDeclare{Exchange: "amq.direct", Type: "fanout", Durable: true}, 406, "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.direct' in vhost '/': received 'fanout' but current is 'direct'"},
		{"delete default exchange", &amqp.ExchangeDelete{}, 403, onDefault},
		{"exchange bind", &amqp.ExchangeBind{Source: "nope", Destination: "amq.direct"}, 404, missingExchange},
		{"exchange bind to default", &amqp.ExchangeBind{Source: "amq.direct"}, 403, onDefault},
		{"exchange unbind from default", &amqp.ExchangeUnbind{Destination: "amq.direct"}, 403, onDefault},

		{"queue missing", &amqp.QueueDeclare{Queue: "nope", Passive: true}, 404, missing},
		{"queue name", &amqp.QueueDeclare{Queue: "amq.x"}, 403, "ACCESS_REFUSED - queue name 'amq.x' contains reserved prefix 'amq.*'"},
		{"queue differs", &amqp.QueueDeclare{Queue: "q", Durable: true}, 406, "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'"},
		{"queue argument", &amqp.QueueDeclare{Queue: "x", Arguments: table("x-max-priority", int32(256))}, 406, "PRECONDITION_FAILED - invalid arg 'x-max-priority' for queue 'x' in vhost '/': {max_value_exceeded,256}"},
		{"stream", &amqp.QueueDeclare{Queue: "x", Durable: true, Arguments: table("x-queue-type", "stream")}, 540, "NOT_IMPLEMENTED - queue 'x' in vhost '/': queue type 'stream' is not offered, only 'classic' and 'quorum'"},
		{"bind, no queue declared", &amqp.QueueBind{Exchange: "amq.direct"}, 404, noneDeclared},
		{"unbind, no queue declared", &amqp.QueueUnbind{Exchange: "amq.direct"}, 404, noneDeclared},
		{"purge, no queue declared", &amqp.QueuePurge{}, 404, noneDeclared},
		{"delete, no queue declared", &amqp.QueueDelete{}, 404, noneDeclared},
		{"get, no queue declared", &amqp.BasicGet{}, 404, noneDeclared},
		{"consume, no queue declared", &amqp.BasicConsume{}, 404, noneDeclared},
		{"bind missing queue", &amqp.QueueBind{Queue: "nope", Exchange: "amq.direct"}, 404, missing},
		{"bind to missing exchange", &amqp.QueueBind{Queue: "q", Exchange: "nope"}, 404, missingExchange},
		{"bind to default exchange", &amqp.QueueBind{Queue: "q"}, 403, onDefault},
		{"purge missing queue", &amqp.QueuePurge{Queue: "nope"}, 404, missing},
		{"get from missing queue", &amqp.BasicGet{Queue: "nope"}, 404, missing},
		{"get from quorum queue with a single active consumer", &amqp.BasicGet{Queue: "one"}, 405, "RESOURCE_LOCKED - cannot obtain access to locked queue 'one' in vhost '/'. basic.get operations are not supported by quorum queues with single active consumer"},
		{"delete used queue", &amqp.QueueDelete{Queue: "c", IfUnused: true}, 406, "PRECONDITION_FAILED - queue 'c' in vhost '/' in use"},
		{"delete full queue", &amqp.QueueDelete{Queue: "r", IfEmpty: true}, 406, "PRECONDITION_FAILED - queue 'r' in vhost '/' not empty"},

		{"prefetch size", &amqp.BasicQos{PrefetchSize: 7}, 540, "NOT_IMPLEMENTED - prefetch_size!=0 (7)"},
		{"consume from missing queue", &amqp.BasicConsume{Queue: "nope"}, 404, missing},
		{"consumer tag", &amqp.BasicConsume{Queue: "q", ConsumerTag: "c"}, 530, "NOT_ALLOWED - attempt to reuse consumer tag 'c'"},
		{"exclusive consumer", &amqp.BasicConsume{Queue: "c", Exclusive: true}, 403, exclusive},
		{"exclusive consumer of a single active one", &amqp.BasicConsume{Queue: "single", Exclusive: true}, 403, strings.Replace(exclusive, "'c'", "'single'", 1)},
		{"x-priority", &amqp.BasicConsume{Queue: "q", Arguments: table("x-priority", "high")}, 406, `PRECONDITION_FAILED - invalid arg 'x-priority' for queue 'q' in vhost '/': "expected integer, got longstr"`},
		{"x-cancel-on-ha-failover", &amqp.BasicConsume{Queue: "q", Arguments: table("x-cancel-on-ha-failover", "yes")}, 406, "PRECONDITION_FAILED - invalid arg 'x-cancel-on-ha-failover' for queue 'q' in vhost '/': {unacceptable_type,longstr}"},
		{"x-cancel-on-ha-failover of a quorum queue", &amqp.BasicConsume{Queue: "one", Arguments: table("x-cancel-on-ha-failover", true)}, 406, "PRECONDITION_FAILED - invalid arg 'x-cancel-on-ha-failover' for queue 'one' in vhost '/' of queue type rabbit_quorum_queue"},
		{"x-stream-offset", &amqp.BasicConsume{Queue: "q", Arguments: table("x-stream-offset", "first")}, 406, "PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue 'q' in vhost '/' of queue type rabbit_classic_queue"},
		{"x-stream-offset of a quorum queue", &amqp.BasicConsume{Queue: "one", Arguments: table("x-stream-offset", "first")}, 406, "PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue 'one' in vhost '/' of queue type rabbit_quorum_queue"},
		{"x-consumer-timeout", &amqp.BasicConsume{Queue: "q", Arguments: table("x-consumer-timeout", int64(-1))}, 406, "PRECONDITION_FAILED - invalid arg 'x-consumer-timeout' for queue 'q' in vhost '/': {value_negative,-1}"},
		{"ack", &amqp.BasicAck{DeliveryTag: 7}, 406, "PRECONDITION_FAILED - unknown delivery tag 7"},
		{"ack 0", &amqp.BasicAck{}, 406, "PRECONDITION_FAILED - unknown delivery tag 0"},
		{"ack multiple", &amqp.BasicAck{DeliveryTag: 7, Multiple: true}, 406, "PRECONDITION_FAILED - unknown delivery tag 7"},
		{"nack", &amqp.BasicNack{DeliveryTag: 7, Requeue: true}, 406, "PRECONDITION_FAILED - unknown delivery tag 7"},
		{"reject", &amqp.BasicReject{DeliveryTag: 7}, 406, "PRECONDITION_FAILED - unknown delivery tag 7"},
		{"recover", &amqp.BasicRecover{}, 540, "NOT_IMPLEMENTED - requeue=false"},
		{"recover-async", &amqp.BasicRecoverAsync{}, 540, "NOT_IMPLEMENTED - requeue=false"},
		{"commit", &amqp.TxCommit{}, 406, "PRECONDITION_FAILED - channel is not transactional"},
		{"rollback", &amqp.TxRollback{}, 406, "PRECONDITION_FAILED - channel is not transactional"},
		{"replies with acknowledgement", &amqp.BasicConsume{Queue: replyTo}, 406, "PRECONDITION_FAILED - reply consumer cannot acknowledge"},
		{"reply queue of nobody", &amqp.QueueDeclare{Queue: replyTo + ".x"}, 404, "NOT_FOUND - no queue 'amq.rabbitmq.reply-to.x' in vhost '/'"},
		{"get from reply queue", &amqp.BasicGet{Queue: replyTo}, 404, "NOT_FOUND - no queue 'amq.rabbitmq.reply-to' in vhost '/'"},

		{"publish to missing exchange", published{exchange: "nope", key: "q", body: "x"}, 404, missingExchange},
		{"publish to internal exchange", published{exchange: "in", body: "x"}, 403, "ACCESS_REFUSED - cannot publish to internal exchange 'in' in vhost '/'"},
		{"user-id", published{key: "q", props: withUserID("joe")}, 406, "PRECONDITION_FAILED - user_id property set to 'joe' but authenticated user was 'guest'"},
		{"expiration", published{key: "q", props: withExpiration("foobar")}, 406, "PRECONDITION_FAILED - invalid expiration 'foobar': no_integer"},
		{"expiration and exchange", published{exchange: "nope", props: withExpiration("foobar")}, 404, missingExchange},
		{"CC", published{key: "q", props: withHeaders("CC", "x")}, 406, `PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,"CC",longstr}`},
		{"BCC", published{key: "q", props: withHeaders("BCC", int32(1))}, 406, `PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,"BCC",signedint}`},
		{"reply-to", published{key: "q", props: withReplyTo(replyTo)}, 406, "PRECONDITION_FAILED - fast reply consumer does not exist"},
		{"reply-to and user-id", published{key: "q", props: with(withReplyTo(replyTo), amqp.PropUserID)}, 406, "PRECONDITION_FAILED - fast reply consumer does not exist"},
		{"message size", published{key: "q", body: strings.Repeat("x", 101)}, 406, "PRECONDITION_FAILED - message size 101 is larger than configured max size 100"},
		{"message size and exchange", published{exchange: "nope", body: strings.Repeat("x", 101)}, 406, "PRECONDITION_FAILED - message size 101 is larger than configured max size 100"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newProbe(t, func(o *Options) { o.MessageMax = 100 }).open().channel(1)
			p.queue(1, "q")
			p.queue(1, "r")
			p.queue(1, "c")
			p.queue(1, "single", "x-single-active-consumer", true)
			one := &amqp.QueueDeclare{Queue: "one", Durable: true, Arguments: table("x-queue-type", "quorum", "x-single-active-consumer", true)}
			do[*amqp.QueueDeclareOK](p, 1, one)
			p.publish(1, published{key: "r", body: "x"})
			do[*amqp.ExchangeDeclareOK](p, 1, &amqp.ExchangeDeclare{Exchange: "in", Type: "fanout", Internal: true})
			do[*amqp.ChannelCloseOK](p, 1, &amqp.ChannelClose{ReplyCode: 200})
			p.channel(1)
			do[*amqp.BasicConsumeOK](p, 1, &amqp.BasicConsume{Queue: "c", ConsumerTag: "c"})

			class, method := uint16(60), uint16(40)
			if m, ok := tt.do.(amqp.Method); ok {
				class, method = m.ID()
				p.send(1, m)
			} else {
				p.publish(1, tt.do.(published))
			}
			got := p.refusal(1)
			if got.code != tt.code || got.text != tt.text || got.class != class || got.method != method {
				t.Errorf("got %+v\nwant %d %q in %d, %d", got, tt.code, tt.text, class, method)
			}
			// The channel can be opened again afterwards, or the connection is closed.
			if (got.channel == 0) != (p.conn.State() == Closing) {
				t.Errorf("connection state %d", p.conn.State())
			}
			if got.channel != 0 {
				p.send(1, &amqp.ChannelCloseOK{})
				p.channel(1)
				if m := do[*amqp.QueueDeclareOK](p, 1, &amqp.QueueDeclare{Queue: "r", Passive: true}); m.MessageCount != 1 {
					t.Errorf("messages in r: got %d", m.MessageCount)
				}
			}
		})
	}
}

// refusal is the content of channel.close or connection.close.
type refusal struct {
	channel, code, class, method uint16
	text                         string
}

// refusal expects channel.close on the channel, or connection.close.
func (p *probe) refusal(channel uint16) refusal {
	p.t.Helper()
	on, m := p.method()
	switch m := m.(type) {
	case *amqp.ChannelClose:
		if on == channel {
			return refusal{on, m.ReplyCode, m.ClassID, m.MethodID, m.ReplyText}
		}
	case *amqp.ConnectionClose:
		return refusal{on, m.ReplyCode, m.ClassID, m.MethodID, m.ReplyText}
	}
	p.t.Fatalf("on channel %d: got %T %+v, want a refusal", on, m, m)
	return refusal{}
}

func TestModesExclude(t *testing.T) {
	p := newProbe(t).open().channel(1).channel(2)
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	p.send(1, &amqp.ConfirmSelect{})
	p.closed(1, 406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode")
	do[*amqp.ConfirmSelectOK](p, 2, &amqp.ConfirmSelect{})
	do[*amqp.ConfirmSelectOK](p, 2, &amqp.ConfirmSelect{})
	p.send(2, &amqp.TxSelect{})
	p.closed(2, 406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode")
}

func TestExclusiveQueueOfAnother(t *testing.T) {
	s := testServer(t)
	p, other := probeOf(t, s, Peer{}).open().channel(1), probeOf(t, s, Peer{}).open()
	do[*amqp.QueueDeclareOK](p, 1, &amqp.QueueDeclare{Queue: "mine", Exclusive: true})
	for _, m := range []amqp.Method{
		&amqp.QueueDeclare{Queue: "mine", Exclusive: true}, &amqp.QueueDeclare{Queue: "mine", Passive: true},
		&amqp.QueueBind{Queue: "mine", Exchange: "amq.direct"}, &amqp.QueuePurge{Queue: "mine"}, &amqp.QueueDelete{Queue: "mine"},
		&amqp.BasicGet{Queue: "mine"}, &amqp.BasicConsume{Queue: "mine"},
	} {
		other.channel(1).send(1, m)
		other.closed(1, 405, "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be "+
			"originally declared on another connection or the exclusive property value does not match that of the original declaration.")
	}
	p.conn.Release(p.now)
	other.channel(1).send(1, &amqp.QueueDeclare{Queue: "mine", Passive: true})
	other.closed(1, 404, "NOT_FOUND - no queue 'mine' in vhost '/'")
}

// A channel that was closed for an error ignores all frames until close-ok.
func TestClosingChannelIgnoresFrames(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.send(1, &amqp.BasicAck{DeliveryTag: 1})
	expect[*amqp.ChannelClose](p, 1)
	p.queueless()
	p.publish(1, published{key: "q", body: "x"})
	p.feed([]byte{3, 0, 1, 0, 0, 0, 0, 0xCE})
	p.send(1, &amqp.QueueDeclare{Queue: "q"}, &amqp.BasicAck{DeliveryTag: 1})
	p.silent()
	do[*amqp.ChannelCloseOK](p, 1, &amqp.ChannelClose{}) // both sides close at once
	p.send(1, &amqp.ChannelCloseOK{})
	p.channel(1)
	p.queueless()

	p.send(1, &amqp.BasicAck{DeliveryTag: 1})
	expect[*amqp.ChannelClose](p, 1)
	p.send(1, &amqp.ChannelOpen{})
	p.refused(504, "CHANNEL_ERROR - second 'channel.open' seen")
}

// queueless expects that there are no queues.
func (p *probe) queueless() {
	p.t.Helper()
	if qs := p.conn.vhost.Queues(); len(qs) > 0 {
		p.t.Errorf("got %d queues", len(qs))
	}
}

// The number of consumers per channel is limited. It used to be unlimited.
func TestTooManyConsumers(t *testing.T) {
	p := newProbe(t, func(o *Options) { o.Consumers = 2 }).open().channel(1).channel(2)
	p.queue(1, "q")
	do[*amqp.BasicConsumeOK](p, 1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "a"})
	do[*amqp.BasicConsumeOK](p, 1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "b"})
	do[*amqp.BasicConsumeOK](p, 2, &amqp.BasicConsume{Queue: "q"})
	do[*amqp.BasicCancelOK](p, 1, &amqp.BasicCancel{ConsumerTag: "a"})
	do[*amqp.BasicConsumeOK](p, 1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c"})
	p.send(1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "d"})
	p.refused(530, "NOT_ALLOWED - reached maximum (2) of consumers per channel")
}
