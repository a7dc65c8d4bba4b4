package session

import (
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

// FuzzFeed feeds arbitrary bytes to a connection with an open channel. They may be refused, but with well-formed frames, and the
// connection must give back everything it holds.
func FuzzFeed(f *testing.F) {
	one := func(ms ...amqp.Method) []byte {
		var b []byte
		for _, m := range ms {
			b = amqp.AppendMethod(b, 1, m)
		}
		return b
	}
	publish := one(&amqp.BasicPublish{RoutingKey: "q", Mandatory: true})
	publish = amqp.AppendContentHeader(publish, 1, 5, []byte{0x10, 0x00, 2})
	publish = amqp.AppendBody(publish, 1, []byte("hello"), 4096)
	f.Add(uint8(0), publish)
	f.Add(uint8(3), append(one(&amqp.ConfirmSelect{}, &amqp.QueueDeclare{Queue: "q"}), publish...))
	f.Add(uint8(1), append(one(&amqp.QueueDeclare{Queue: "q"}, &amqp.BasicConsume{Queue: "q"}), publish...))
	f.Add(uint8(0), append(one(&amqp.TxSelect{}, &amqp.QueueDeclare{Queue: "q"}), append(publish, one(
		&amqp.TxCommit{}, &amqp.BasicGet{Queue: "q"}, &amqp.BasicNack{DeliveryTag: 1, Requeue: true}, &amqp.TxCommit{}, &amqp.BasicRecover{Requeue: true})...)...))
	f.Add(uint8(7), one(&amqp.ExchangeDeclare{Exchange: "x", Type: "topic"}, &amqp.ExchangeBind{Destination: "x", Source: "amq.topic", RoutingKey: "#"},
		&amqp.QueueDeclare{Exclusive: true}, &amqp.QueueBind{Exchange: "x", RoutingKey: "a.*"}, &amqp.ExchangeDelete{Exchange: "x"}))
	f.Add(uint8(0), one(&amqp.ChannelClose{}, &amqp.ChannelOpen{}, &amqp.ChannelFlow{Active: true}, &amqp.BasicQos{PrefetchCount: 1}))
	f.Add(uint8(0), amqp.AppendMethod(nil, 0, &amqp.ConnectionClose{}))
	f.Add(uint8(5), []byte{amqp.FrameBody, 0, 1, 0xff, 0xff, 0xff, 0xff})

	f.Fuzz(func(t *testing.T, size uint8, b []byte) {
		s := testServer(t)
		p := probeOf(t, s, Peer{}).open("basic.nack", "consumer_cancel_notify").channel(1)
		for len(b) > 0 {
			n := min(1+16*int(size), len(b))
			p.feed(b[:n])
			b = b[n:]
		}
		for {
			if _, ok := p.frame(); !ok {
				break
			}
		}
		p.conn.Release(p.now)
		if got := s.openConns.Load(); got != 0 {
			t.Errorf("%d connections left", got)
		}
	})
}
