package session

import (
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
)

// Deliveries from queues of different types are counted apart, even if one method acknowledges all of them.
func TestCountersByQueueType(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "classic")
	do[*amqp.QueueDeclareOK](p, 1, &amqp.QueueDeclare{
		Queue: "quorum", Durable: true, Arguments: amqp.Table{{Key: "x-queue-type", Value: "quorum"}},
	})
	p.publish(1, bodies("classic", "1", "2", "3")...)
	p.publish(1, bodies("quorum", "4", "5")...)
	for _, name := range []string{"classic", "quorum", "quorum"} {
		do[*amqp.BasicGetOK](p, 1, &amqp.BasicGet{Queue: name})
		_, _ = p.content(1)
	}
	do[*amqp.BasicGetEmpty](p, 1, &amqp.BasicGet{Queue: "quorum", NoAck: true})
	p.send(1, &amqp.BasicAck{DeliveryTag: 2, Multiple: true}, &amqp.BasicReject{DeliveryTag: 3, Requeue: true})
	p.consume(1, "classic", "c")
	p.delivers(1, "c4:2 c5:3")
	want := [queue.Types]DeliveryCounters{
		queue.ClassicType: {Delivered: 2, Got: 1, Acked: 1},
		queue.QuorumType:  {Got: 2, GetEmpty: 1, Acked: 1},
	}
	got := p.conn.Counters()
	if got.Deliveries != want {
		t.Errorf("got %+v, want %+v", got.Deliveries, want)
	}
	if all := got.AllDeliveries(); all != (DeliveryCounters{Delivered: 2, Got: 3, GetEmpty: 1, Acked: 2}) {
		t.Errorf("got %+v altogether", all)
	}
}
