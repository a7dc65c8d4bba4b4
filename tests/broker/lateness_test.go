package broker

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// measureLateness publishes n messages that live for random times to one queue, and returns how long after its deadline each came out
// of the queue that they are dead-lettered to. The clock starts before a message is sent.
func measureLateness(t *testing.T, conn *amqp091.Connection, n int) []time.Duration {
	t.Helper()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	declare(t, ch, "dead", nil)
	declare(t, ch, "work", amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
	dead, err := ch.Consume("dead", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	deadlines := make([]time.Time, n)
	for i := range deadlines {
		ttl := 50 + rand.IntN(950)
		deadlines[i] = time.Now().Add(time.Duration(ttl) * time.Millisecond)
		m := amqp091.Publishing{MessageId: strconv.Itoa(i), Expiration: strconv.Itoa(ttl)}
		if err := ch.PublishWithContext(t.Context(), "", "work", false, false, m); err != nil {
			t.Fatal(err)
		}
	}
	late := make([]time.Duration, n)
	for range n {
		d := await(t, dead, "a dead letter")
		i, err := strconv.Atoi(d.MessageId)
		if err != nil {
			t.Fatal(err)
		}
		late[i] = time.Since(deadlines[i])
	}
	return late
}

func declare(t *testing.T, ch *amqp091.Channel, name string, args amqp091.Table) {
	t.Helper()
	if _, err := ch.QueueDeclare(name, false, false, false, false, args); err != nil {
		t.Fatal(err)
	}
}
