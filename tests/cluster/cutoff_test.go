package cluster

import (
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// What a consumer has not acknowledged that is connected through a node which is cut off is delivered to others within seconds. The node that
// serves the vhost hears nothing of the end of that connection, and kept it for as long as the system does: for minutes, or for ever. The client
// is told, too: its node ends the connection.
func TestDeliveriesThroughANodeThatIsCutOff(t *testing.T) {
	t.Parallel()
	c := Start(t, "limits: {heartbeat: 5m}")
	owner := c.Owner("/")
	front := c.Nodes[(owner.Number+1)%size]
	publish(t, owner, "q", 1)
	conn, err := amqp091.DialConfig(front.URL(), amqp091.Config{Heartbeat: 5 * time.Minute}) // heartbeats would end it, too
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // its node ends it
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := ch.Get("q", false); !ok || err != nil {
		t.Fatalf("there is a message: %t, %v", ok, err)
	}
	c.AwaitSpare()
	closed := conn.NotifyClose(make(chan *amqp091.Error, 1))
	other := channelOf(t, owner.URL())
	var d amqp091.Delivery
	began := time.Now()
	c.Isolate(front.Number, c.Network.Hold)
	if _, _, inTime := process.Receive(closed); !inTime {
		t.Error("the node that is cut off keeps the client's connection")
	}
	t.Logf("the client's connection has ended after %v", time.Since(began))
	if !process.Poll(func() (back bool) {
		if d, back, err = other.Get("q", true); err != nil {
			t.Fatal(err)
		}
		return back
	}) {
		t.Fatal("it does not come back")
	}
	t.Logf("it comes back after %v", time.Since(began))
	if !d.Redelivered {
		t.Error("it is not marked as redelivered")
	}
}
