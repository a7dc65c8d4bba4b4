package session

import (
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

func (p *probe) tick(after time.Duration) {
	p.t.Helper()
	p.now = p.now.Add(after)
	p.conn.Tick(p.now)
	p.feed(nil)
}

func withTimeout(d time.Duration) func(*Options) { return func(o *Options) { o.ConsumerTimeout = d } }

const timedOut = "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 60000 ms. " +
	"This timeout value can be configured, see consumers doc guide to learn more"

func TestConsumerTimeout(t *testing.T) {
	p := newProbe(t, withTimeout(time.Minute)).open("consumer_cancel_notify").channel(1).channel(2)
	p.queue(1, "q")
	p.consume(1, "q", "c")
	p.tick(time.Hour)
	p.publish(1, bodies("q", "1", "2")...)
	p.delivers(1, "c1:1 c2:2")
	p.tick(20 * time.Second) // it notices the deliveries, and that they are not older than this
	p.tick(50 * time.Second)
	p.silent()
	p.send(1, &amqp.BasicAck{DeliveryTag: 1})
	p.publish(1, bodies("q", "3")...)
	p.delivers(1, "c3:3")
	p.tick(9 * time.Second)
	p.silent()
	p.tick(time.Second) // a minute since 2 was noticed
	p.closed(1, 406, timedOut)
	p.holds(2, "q", 2)
	p.tick(time.Hour)
	p.silent()
}

func TestConsumerTimeoutCountsFromTheDelivery(t *testing.T) {
	p := newProbe(t, withTimeout(time.Minute)).open().channel(1)
	p.queue(1, "q")
	p.consume(1, "q", "c")
	for range 100 {
		p.publish(1, bodies("q", "x")...)
		p.delivered(1, "x")
		p.tick(10 * time.Second)
		if last := p.conn.channels.at(1).deliveries.unsettled.tags.next; last > 3 {
			p.send(1, &amqp.BasicAck{DeliveryTag: last - 3})
		}
	}
	p.silent()
	if got := len(p.conn.channels.at(1).deliveries.unsettled.times); got > 10 {
		t.Errorf("%d marks", got)
	}
}

func TestConsumerTimeoutOfGet(t *testing.T) {
	p := newProbe(t, withTimeout(time.Minute)).open("consumer_cancel_notify").channel(1)
	do[*amqp.QueueDeclareOK](p, 1, &amqp.QueueDeclare{Queue: "q", Durable: true, Arguments: table("x-queue-type", "quorum")})
	p.publish(1, bodies("q", "1")...)
	do[*amqp.BasicGetOK](p, 1, &amqp.BasicGet{Queue: "q"})
	p.content(1)
	p.tick(time.Second)
	p.tick(time.Minute)
	p.closed(1, 406, timedOut)
}

// Consumers and queues may have timeouts of their own; 0 means none.
func TestConsumerTimeoutOfItsOwn(t *testing.T) {
	tests := []struct {
		name            string
		broker          time.Duration
		queue, consumer any
		want            time.Duration // 0 = never
	}{
		{name: "none"},
		{name: "broker", broker: time.Minute, want: time.Minute},
		{name: "queue", queue: int32(60_000), want: time.Minute},
		{name: "shorter queue", broker: time.Hour, queue: int32(60_000), want: time.Minute},
		{name: "consumer", broker: time.Second, queue: int32(30_000), consumer: int64(60_000), want: time.Minute},
		{name: "consumer without", broker: time.Second, consumer: int64(0)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newProbe(t, withTimeout(tt.broker)).open().channel(1)
			var ofQueue, ofConsumer amqp.Table
			if tt.queue != nil {
				ofQueue = table("x-consumer-timeout", tt.queue)
			}
			if tt.consumer != nil {
				ofConsumer = table("x-consumer-timeout", tt.consumer)
			}
			do[*amqp.QueueDeclareOK](p, 1, &amqp.QueueDeclare{Queue: "q", Arguments: ofQueue})
			do[*amqp.BasicConsumeOK](p, 1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c", Arguments: ofConsumer})
			p.publish(1, bodies("q", "1")...)
			p.delivers(1, "c1:1")
			p.tick(0)
			p.tick(time.Minute - 1)
			p.silent()
			p.tick(1)
			if tt.want == 0 {
				p.tick(24 * time.Hour)
				p.silent()
				return
			}
			p.closed(1, 406, timedOut)
		})
	}
}

// A client that understands basic.cancel loses its consumer of a quorum queue, but not its channel.
func TestConsumerTimeoutOfQuorumQueue(t *testing.T) {
	for _, can := range [][]string{nil, {"consumer_cancel_notify"}} {
		p := newProbe(t, withTimeout(time.Minute)).open(can...).channel(1)
		do[*amqp.QueueDeclareOK](p, 1, &amqp.QueueDeclare{Queue: "q", Durable: true, Arguments: table("x-queue-type", "quorum")})
		do[*amqp.BasicQosOK](p, 1, &amqp.BasicQos{PrefetchCount: 2})
		p.consume(1, "q", "c")
		p.publish(1, bodies("q", "1", "2", "3")...)
		p.delivers(1, "c1:1 c2:2")
		p.tick(0)
		p.tick(time.Minute)
		if can == nil {
			p.closed(1, 406, timedOut)
			continue
		}
		if m := expect[*amqp.BasicCancel](p, 1); m.ConsumerTag != "c" || !m.NoWait {
			t.Errorf("got %+v", m)
		}
		p.silent()
		p.holds(1, "q", 3)
		p.send(1, &amqp.BasicAck{DeliveryTag: 1}) // it came back to its queue
		p.closed(1, 406, "PRECONDITION_FAILED - unknown delivery tag 1")
	}
}

// The number of tag times stays small, however long a delivery stays.
func TestTagTimesAreBounded(t *testing.T) {
	p := newProbe(t, withTimeout(1000*time.Hour)).open().channel(1)
	p.queue(1, "q")
	p.consume(1, "q", "c")
	for range 2000 {
		p.publish(1, bodies("q", "x")...)
		p.delivered(1, "x")
		p.tick(time.Second)
	}
	if got := len(p.conn.channels.at(1).deliveries.unsettled.times); got > maxTagTimes {
		t.Errorf("%d marks", got)
	}
	p.send(1, &amqp.BasicAck{Multiple: true})
	p.tick(time.Second)
	if got := len(p.conn.channels.at(1).deliveries.unsettled.times); got != 0 {
		t.Errorf("%d marks for nothing", got)
	}
}
