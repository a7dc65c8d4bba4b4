package broker

import (
	"strconv"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// keyed returns a persistent message with a deduplication header.
func keyed(key string) amqp091.Publishing {
	return amqp091.Publishing{
		Headers: amqp091.Table{"x-deduplication-header": key}, DeliveryMode: amqp091.Persistent, Body: []byte(key),
	}
}

func deduplicating(t *testing.T, url string) (*amqp091.Connection, *amqp091.Channel) {
	t.Helper()
	conn, err := process.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("q", true, false, false, false, amqp091.Table{"x-message-deduplication": true}); err != nil {
		t.Fatal(err)
	}
	return conn, ch
}

// A consumer that acknowledged a message and published its successor in one write had lost it: queues got published messages before
// settlements, so that the message was a duplicate of the one that had been acknowledged before.
func TestAnAcknowledgedMessageIsNoDuplicate(t *testing.T) {
	conn, ch := deduplicating(t, process.Start(t, "").URL())
	defer conn.Close()
	ds, err := ch.Consume("q", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 500
	for round := range rounds + 1 {
		if round > 0 {
			d := await(t, ds, "round "+strconv.Itoa(round))
			if err := d.Ack(false); err != nil {
				t.Fatal(err)
			}
		}
		if err := ch.PublishWithContext(t.Context(), "", "q", false, false, keyed("same")); err != nil {
			t.Fatal(err)
		}
	}
}

// After a restart nothing is remembered: one duplicate of each message that was there enters, as in RabbitMQ.
func TestNoDuplicateIsKnownAfterARestart(t *testing.T) {
	dir := t.TempDir()
	p := process.Start(t, "", "--data", dir)
	conn, ch := deduplicating(t, p.URL())
	args := amqp091.Table{"x-cache-size": 10}
	if err := ch.ExchangeDeclare("once", "x-message-deduplication", true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind("q", "", "once", false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	send := func(ch *amqp091.Channel) {
		t.Helper()
		for range 3 {
			c, err := ch.PublishWithDeferredConfirm("once", "", false, false, keyed("same"))
			if err != nil {
				t.Fatal(err)
			}
			if acked, err := c.WaitContext(t.Context()); err != nil || !acked {
				t.Fatalf("not confirmed: %v", err)
			}
		}
	}
	count := func(ch *amqp091.Channel, want int) {
		t.Helper()
		if q, err := ch.QueueDeclarePassive("q", true, false, false, false, nil); err != nil || q.Messages != want {
			t.Errorf("got %d messages, %v, want %d", q.Messages, err, want)
		}
	}
	send(ch)
	count(ch, 1)
	_ = conn.Close()
	p.Stop()

	conn, ch = deduplicating(t, process.Start(t, "", "--data", dir).URL())
	defer conn.Close()
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	count(ch, 1)
	send(ch)
	count(ch, 2)
}
