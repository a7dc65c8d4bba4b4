package broker

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// A queue of either type keeps its dead letters while they have nowhere to go, through kill -9, and delivers them once there is a
// place for them, in a queue of either type.
func TestDeadLettersStayUntilTheyArrive(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	start := func() (*process.Process, *amqp091.Channel) {
		b := process.Start(t, "", "--data", data)
		conn, err := process.Dial(b.URL())
		if err != nil {
			t.Fatal(err)
		}
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		return b, ch
	}
	declare := func(ch *amqp091.Channel, name string, args amqp091.Table) {
		t.Helper()
		if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
			t.Fatal(err)
		}
	}
	kinds := []string{"classic", "quorum"}
	const messages = 20

	b, ch := start()
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		declare(ch, kind, amqp091.Table{
			"x-queue-type": kind, "x-message-ttl": 10, "x-overflow": "reject-publish",
			"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "from-" + kind, "x-dead-letter-strategy": "at-least-once",
		})
		for i := range messages {
			done, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", kind, false, false,
				amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: fmt.Append(nil, i)})
			if err != nil || !done.Wait() {
				t.Fatalf("%s %d: %v", kind, i, err)
			}
		}
	}
	unready := func(ch *amqp091.Channel) bool {
		for _, kind := range kinds {
			if q, err := ch.QueueDeclarePassive(kind, true, false, false, false, nil); err != nil || q.Messages > 0 {
				return false
			}
		}
		return true
	}
	if !process.Poll(func() bool { return unready(ch) }) {
		t.Fatal("messages do not expire")
	}
	b.Kill()

	b, ch = start()
	if !unready(ch) {
		t.Error("consumers can have dead letters")
	}
	for i, kind := range kinds {
		declare(ch, "from-"+kind, amqp091.Table{"x-queue-type": kinds[1-i]})
	}
	b.Kill() // what had nowhere to go is sent again at the next start, or after three minutes

	_, ch = start()
	for _, kind := range kinds {
		deliveries, err := ch.Consume("from-"+kind, "", false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range messages {
			d := await(t, deliveries, "a dead letter")
			if string(d.Body) != strconv.Itoa(i) {
				t.Errorf("from %s: got %s, want %d", kind, d.Body, i)
			}
			if deaths, _ := d.Headers["x-death"].([]any); len(deaths) != 1 {
				t.Errorf("from %s: x-death is %v", kind, d.Headers["x-death"])
			}
			if err := d.Ack(false); err != nil {
				t.Fatal(err)
			}
		}
	}
}
