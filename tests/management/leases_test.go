package management

import (
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// A policy gives the deliveries of queues a lease, which holds for consumers that are there already: what they leave comes back
// to them, one by one, and channels stay. Lists show the lease, and how many have ended.
func TestLeasesByPolicy(t *testing.T) {
	t.Parallel()
	p := process.Start(t, "")
	b := of(t, p)
	ch := b.dial(t, "guest", "guest", "/")
	closed := ch.NotifyClose(make(chan *amqp091.Error, 1))
	if _, err := ch.QueueDeclare("q", false, false, false, false, amqp091.Table{"x-delivery-lease": 60_000}); err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume("q", "c", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.ctl(t, "set_policy", "--apply-to", "queues", "leases", "^q$", `{"delivery-lease": 5000}`)
	b.ctl(t, "set_operator_policy", "--apply-to", "queues", "ceiling", "^q$", `{"delivery-lease": 2000}`)
	b.wantListed(t, "/", "name,delivery_lease,delivery_leases_ended", "q\t2000\t0")

	next := func() amqp091.Delivery {
		t.Helper()
		d, open, inTime := process.Receive(deliveries)
		if !open || !inTime {
			t.Fatal("no delivery")
		}
		return d
	}
	for _, body := range []string{"left", "settled"} {
		if err := ch.PublishWithContext(t.Context(), "", "q", false, false, amqp091.Publishing{Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	left, settled := next(), next()
	if err := settled.Ack(false); err != nil {
		t.Fatal(err)
	}
	again := next()
	if string(again.Body) != "left" || !again.Redelivered {
		t.Errorf("got %s, redelivered %t", again.Body, again.Redelivered)
	}
	for _, d := range []amqp091.Delivery{left, again} { // the first one is too late
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	if !process.Poll(func() bool { return strings.Contains(b.ctl(t, "-q", "list_queues", "name", "messages"), "q\t0\n") }) {
		t.Error("the message is still there")
	}
	b.wantListed(t, "/", "name,delivery_lease,delivery_leases_ended", "q\t2000\t1")
	if got := b.ctl(t, "-q", "list_consumers", "consumer_tag", "delivery_lease"); !strings.Contains(got, "c\t2000\n") {
		t.Errorf("list_consumers: %s", got)
	}
	select {
	case e := <-closed:
		t.Errorf("the channel was closed: %v", e)
	default:
	}
	for _, bad := range []string{`0`, `-1`, `"1s"`, `315360000001`} {
		status, stdout, stderr := b.tool(t, "", "set_policy", "bad", "^q$", `{"delivery-lease": `+bad+`}`)
		if status == 0 || !strings.Contains(stdout+stderr, "is not a valid delivery lease. Valid range is 1-315360000000") {
			t.Errorf("%s: exit status %d, %s%s", bad, status, stdout, stderr)
		}
	}
}
