package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// A node that is drained tells publishers that are connected through other nodes what it tells its own: what they had published is
// confirmed, then they wait, and when the node stops they are closed with 320. Those that had waited for more than five seconds had their
// sockets closed without a word.
func TestDrainReachesRelayedPublishers(t *testing.T) {
	t.Parallel()
	c := Start(t, "")
	owner := c.Owner("/")
	publish(t, owner, "q", 1)
	var all []*drained
	for i := range size { // the last one is connected to the owner
		all = append(all, newDrained(t, c.Nodes[(owner.Number+1+i)%size]))
	}
	if err := c.Ctl(owner, "drain", "--no-stop"); err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if why := d.publish(t); why != "" {
			t.Errorf("%s: %s", d.node.Address, why)
		}
		go d.flood()
	}
	time.Sleep(6 * time.Second) // they wait meanwhile
	if err := c.Ctl(owner, "drain", "--no-wait"); err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		select {
		case why := <-d.closed:
			if why == nil || why.Code != amqp091.ConnectionForced {
				t.Errorf("%s: it is closed with %v", d.node.Address, why)
			}
		case <-time.After(process.Patience):
			t.Fatalf("%s: a publisher waits although the owner has stopped", d.node.Address)
		}
	}
	owner.Exit()
}

// drained is a publisher at a node, of a queue whose owner is drained.
type drained struct {
	node    *Node
	ch      *amqp091.Channel
	blocked chan amqp091.Blocking
	closed  chan *amqp091.Error
}

func newDrained(t *testing.T, n *Node) *drained {
	t.Helper()
	conn, err := process.Dial(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the node may be gone
	d := &drained{node: n, blocked: conn.NotifyBlocked(make(chan amqp091.Blocking, 1)), closed: conn.NotifyClose(make(chan *amqp091.Error, 1))}
	if d.ch, err = conn.Channel(); err != nil {
		t.Fatal(err)
	}
	if err := d.ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return d
}

// publish publishes a message, and returns what is wrong: it has to be confirmed, and the publisher to be told to wait.
func (d *drained) publish(t *testing.T) string {
	t.Helper()
	sent, err := d.ch.PublishWithDeferredConfirm("", "q", false, false, amqp091.Publishing{DeliveryMode: amqp091.Persistent})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case b := <-d.blocked:
		if !b.Active || b.Reason != "the broker is being drained" {
			return fmt.Sprintf("it is told %+v", b)
		}
	case <-time.After(process.Patience):
		return "it is not told to wait"
	}
	if ok, err := sent.WaitContext(t.Context()); !ok || err != nil {
		return fmt.Sprintf("what it had published is not confirmed: %v", err)
	}
	return ""
}

// flood publishes until the connection ends, more than fits into all buffers on the way.
func (d *drained) flood() {
	m := amqp091.Publishing{Body: make([]byte, 1<<17)}
	for err := error(nil); err == nil; {
		err = d.ch.Publish("", "q", false, false, m)
	}
}
