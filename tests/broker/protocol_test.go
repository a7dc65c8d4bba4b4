package broker

import (
	"bytes"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/tests/process"
)

// A channel error closes the channel, and nothing else: not the connection, not the other channels on it, not what they have
// published and consume.
func TestChannelErrorsStayInTheirChannel(t *testing.T) {
	p := login(t, target(t)).channel(1).channel(2)
	p.method(2, &amqp.QueueDeclare{Queue: "q", Exclusive: true})
	expect[*amqp.QueueDeclareOK](p, 2)
	tests := []struct {
		m    amqp.Method
		code uint16
		text string
	}{
		{&amqp.QueueDeclare{Queue: "none", Passive: true}, 404, "NOT_FOUND - no queue 'none' in vhost '/'"},
		{&amqp.BasicConsume{Queue: "none"}, 404, "NOT_FOUND - no queue 'none' in vhost '/'"},
		{&amqp.BasicGet{}, 404, "NOT_FOUND - no previously declared queue"},
		{&amqp.BasicAck{DeliveryTag: 1}, 406, "PRECONDITION_FAILED - unknown delivery tag 1"},
		{&amqp.BasicNack{DeliveryTag: 1}, 406, "PRECONDITION_FAILED - unknown delivery tag 1"},
		{&amqp.BasicReject{DeliveryTag: 1}, 406, "PRECONDITION_FAILED - unknown delivery tag 1"},
		{&amqp.ExchangeDeclare{Exchange: "amq.direct", Type: "topic"}, 406, "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.direct' in vhost '/': received 'topic' but current is 'direct'"},
		{&amqp.TxCommit{}, 406, "PRECONDITION_FAILED - channel is not transactional"},
	}
	for _, tt := range tests {
		t.Run(tt.m.Name(), func(t *testing.T) {
			p.method(1, tt.m)
			p.channelRefused(1, tt.code, tt.text)
			p.send(publishing(2, "q", []byte("hello")))
			p.method(2, &amqp.BasicGet{Queue: "q", NoAck: true})
			expect[*amqp.BasicGetOK](p, 2)
			p.frame()
			p.frame()
		})
	}
}

// What is sent on a channel after the broker has closed it is ignored until the client has taken note [AMQP 1.5.2.5].
func TestFramesOnAClosingChannel(t *testing.T) {
	p := login(t, target(t)).channel(1)
	late := publishing(1, "q", []byte("late"))
	b := amqp.AppendMethod(nil, 1, &amqp.QueueDeclare{Queue: "none", Passive: true})
	b = append(b, late...)
	b = append(b, amqp.AppendMethod(nil, 1, &amqp.QueueDeclare{Queue: "q", Exclusive: true})...)
	p.send(b)
	p.channelRefused(1, 404, "NOT_FOUND - no queue 'none' in vhost '/'")
	p.method(1, &amqp.QueueDeclare{Queue: "q", Passive: true})
	p.channelRefused(1, 404, "NOT_FOUND - no queue 'q' in vhost '/'")
}

// A message that comes back does so before it is confirmed, and all the confirms of a burst come in few frames.
func TestReturnsComeBeforeAcks(t *testing.T) {
	p := login(t, target(t)).channel(1)
	p.method(1, &amqp.ConfirmSelect{})
	expect[*amqp.ConfirmSelectOK](p, 1)
	const count = 1000
	message := amqp.AppendMethod(nil, 1, &amqp.BasicPublish{RoutingKey: "nowhere", Mandatory: true})
	message = amqp.AppendContentHeader(message, 1, 0, []byte{0, 0})
	p.send(bytes.Repeat(message, count))
	returned, acked, acks := 0, uint64(0), 0
	for acked < count {
		f, ok := p.frame()
		if !ok {
			t.Fatal("the connection was closed")
		}
		if f.Type != amqp.FrameMethod {
			continue
		}
		switch m := method(t, f).(type) {
		case *amqp.BasicReturn:
			returned++
		case *amqp.BasicAck:
			acks++
			acked = m.DeliveryTag
			if uint64(returned) < acked {
				t.Fatalf("%d messages are confirmed, and %d came back", acked, returned)
			}
		default:
			t.Fatalf("got %T", m)
		}
	}
	t.Logf("%d confirms in %d frames", count, acks)
}

func TestConfirmsAreCoalesced(t *testing.T) {
	p := login(t, target(t)).channel(1)
	p.method(1, &amqp.QueueDeclare{Queue: "q", Exclusive: true})
	expect[*amqp.QueueDeclareOK](p, 1)
	p.method(1, &amqp.ConfirmSelect{})
	expect[*amqp.ConfirmSelectOK](p, 1)
	const count = 1000
	p.send(bytes.Repeat(publishing(1, "q", []byte("hello")), count))
	acks := 0
	for acked := uint64(0); acked < count; acks++ {
		m := expect[*amqp.BasicAck](p, 1)
		if !m.Multiple && m.DeliveryTag != acked+1 {
			t.Fatalf("confirm of %d after %d", m.DeliveryTag, acked)
		}
		acked = m.DeliveryTag
	}
	t.Logf("%d confirms in %d frames", count, acks)
	if acks > count/2 {
		t.Error("that is one for nearly each")
	}
}

func method(t *testing.T, f amqp.Frame) amqp.Method {
	t.Helper()
	m, err := amqp.ParseMethod(f.Payload)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A client that did not say that it understands basic.cancel does not get it.
func TestConsumerCancelNotify(t *testing.T) {
	address := target(t)
	for _, told := range []bool{true, false} {
		var can []string
		if told {
			can = []string{"consumer_cancel_notify"}
		}
		p := login(t, address, can...).channel(1).channel(2)
		p.method(1, &amqp.QueueDeclare{Queue: "q"})
		expect[*amqp.QueueDeclareOK](p, 1)
		p.method(1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c"})
		expect[*amqp.BasicConsumeOK](p, 1)
		p.method(2, &amqp.QueueDelete{Queue: "q"})
		if told {
			p.inAnyOrder("basic.cancel", "queue.delete-ok")
			continue
		}
		expect[*amqp.QueueDeleteOK](p, 2)
		p.method(1, &amqp.QueueDeclare{Queue: "other", Exclusive: true})
		expect[*amqp.QueueDeclareOK](p, 1) // and nothing before it
	}
}

// Between consume-ok and cancel-ok come all deliveries of a consumer: none before, none after.
func TestDeliveriesKeepToTheirTime(t *testing.T) {
	address := target(t)
	publisher := login(t, address).channel(1)
	publisher.method(1, &amqp.QueueDeclare{Queue: "q"})
	expect[*amqp.QueueDeclareOK](publisher, 1)
	p := login(t, address).channel(1)
	for range 50 {
		publisher.send(bytes.Repeat(publishing(1, "q", []byte("hello")), 100))
		p.method(1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c", NoAck: true})
		expect[*amqp.BasicConsumeOK](p, 1)
		p.method(1, &amqp.BasicCancel{ConsumerTag: "c"})
		for cancelled := false; !cancelled; {
			f, _ := p.frame()
			if f.Type != amqp.FrameMethod {
				continue
			}
			_, cancelled = method(t, f).(*amqp.BasicCancelOK)
		}
	}
	publisher.method(1, &amqp.QueueDelete{Queue: "q"})
	expect[*amqp.QueueDeleteOK](publisher, 1)
	p.method(1, &amqp.BasicQos{PrefetchCount: 1})
	expect[*amqp.BasicQosOK](p, 1) // and nothing before it
}

// What a client says it is not asked for gets no answer; what it asks for by no-wait and cannot have closes the channel all the same.
func TestNoWait(t *testing.T) {
	p := login(t, target(t)).channel(1)
	p.method(1, &amqp.QueueDeclare{Queue: "q", Exclusive: true, NoWait: true})
	p.method(1, &amqp.ExchangeDeclare{Exchange: "x", Type: "fanout", NoWait: true})
	p.method(1, &amqp.QueueBind{Queue: "q", Exchange: "x", NoWait: true})
	p.method(1, &amqp.ConfirmSelect{NoWait: true})
	p.method(1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c", NoWait: true})
	p.method(1, &amqp.BasicCancel{ConsumerTag: "c", NoWait: true})
	p.method(1, &amqp.QueuePurge{Queue: "q", NoWait: true})
	p.method(1, &amqp.QueueDelete{Queue: "q", NoWait: true})
	p.method(1, &amqp.ExchangeDelete{Exchange: "x", NoWait: true})
	p.method(1, &amqp.QueueDeclare{Queue: "q", Passive: true, NoWait: true})
	p.channelRefused(1, 404, "NOT_FOUND - no queue 'q' in vhost '/'")
}

// The connection is closed for what is not offered, with the code that says so [AMQP 1.2].
func TestNotImplemented(t *testing.T) {
	address := target(t)
	tests := []struct {
		m    amqp.Method
		code uint16
		text string
	}{
		{&amqp.ChannelFlow{Active: false}, 540, "NOT_IMPLEMENTED - active=false"},
		{&amqp.BasicQos{PrefetchSize: 5}, 540, "NOT_IMPLEMENTED - prefetch_size!=0 (5)"},
		{&amqp.BasicRecover{Requeue: false}, 540, "NOT_IMPLEMENTED - requeue=false"},
		{&amqp.BasicPublish{Immediate: true}, 540, "NOT_IMPLEMENTED - immediate=true"},
	}
	for _, tt := range tests {
		t.Run(tt.m.Name(), func(t *testing.T) {
			p := login(t, address).channel(1)
			p.method(1, tt.m)
			if _, isPublish := tt.m.(*amqp.BasicPublish); isPublish {
				p.send(amqp.AppendContentHeader(nil, 1, 0, []byte{0, 0}))
			}
			p.refused(tt.code, tt.text)
		})
	}
}

func TestAccessRequest(t *testing.T) {
	p := login(t, target(t)).channel(1)
	p.method(1, &amqp.AccessRequest{Realm: "/data"})
	if got := expect[*amqp.AccessRequestOK](p, 1); got.Ticket != 1 {
		t.Errorf("ticket %d, want 1", got.Ticket)
	}
}

// A queue without a name gets one, and is the one meant by "" from then on.
func TestServerNamedQueue(t *testing.T) {
	p := login(t, target(t)).channel(1)
	p.method(1, &amqp.QueueDeclare{Exclusive: true})
	name := expect[*amqp.QueueDeclareOK](p, 1).Queue
	if len(name) < 20 || name[:8] != "amq.gen-" {
		t.Errorf("queue %q", name)
	}
	p.method(1, &amqp.QueueBind{Exchange: "amq.fanout"})
	expect[*amqp.QueueBindOK](p, 1)
	p.send(publishing(1, name, []byte("hello")))
	p.method(1, &amqp.BasicGet{NoAck: true})
	expect[*amqp.BasicGetOK](p, 1)
}

// Who does not acknowledge for too long loses the channel; the message goes to somebody else.
func TestConsumerTimeout(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "limits: {consumer-timeout: 500ms}")
	p := login(t, b.AMQP).channel(1)
	p.method(1, &amqp.QueueDeclare{Queue: "q"})
	expect[*amqp.QueueDeclareOK](p, 1)
	p.send(publishing(1, "q", []byte("hello")))
	p.method(1, &amqp.BasicConsume{Queue: "q"})
	expect[*amqp.BasicConsumeOK](p, 1)
	expect[*amqp.BasicDeliver](p, 1)
	p.frame()
	p.frame()
	p.channelRefused(1, 406, "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 500 ms. "+
		"This timeout value can be configured, see consumers doc guide to learn more")
	p.method(1, &amqp.BasicGet{Queue: "q", NoAck: true})
	if got := expect[*amqp.BasicGetOK](p, 1); !got.Redelivered {
		t.Error("the message is not marked as redelivered")
	}
}
