package page

import (
	"strconv"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// hostile is the name that scenarios give to everything.
const hostile = `<img src=x onerror=alert(1)>"'&`

// clients are what scenarios ask for besides a browser: clients that consume, until the test has ended.
func clients(t *testing.T, b *process.Process) map[string]func() {
	t.Helper()
	return map[string]func(){
		"consume":           func() { consume(t, b, "mail-sender", "mail", 2) },
		"consume hostilely": func() { consume(t, b, hostile, hostile, 1) },
	}
}

// consume takes as many messages as prefetch allows, and settles none.
func consume(t *testing.T, b *process.Process, name, queue string, prefetch int) {
	t.Helper()
	ch := channel(t, b, name)
	if err := ch.Qos(prefetch, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(queue, name, false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range prefetch {
		if _, open, inTime := process.Receive(deliveries); !open || !inTime {
			t.Fatal("no message is delivered")
		}
	}
}

// storm publishes messages that expire all the time for a minute.
func storm(t *testing.T, b *process.Process) {
	t.Helper()
	const messages, minute = 120_000, 60_000
	ch := channel(t, b, "storm")
	for i := range messages {
		m := amqp091.Publishing{Expiration: strconv.Itoa(500 + i*minute/messages), MessageId: "reply-" + strconv.Itoa(i), Body: []byte("x")}
		if err := ch.PublishWithContext(t.Context(), "", "reply.7f3a", false, false, m); err != nil {
			t.Fatal(err)
		}
	}
}

func channel(t *testing.T, b *process.Process, name string) *amqp091.Channel {
	t.Helper()
	properties := amqp091.Table{"connection_name": name, "product": name}
	conn, err := amqp091.DialConfig(b.URL(), amqp091.Config{Properties: properties, Dial: amqp091.DefaultDial(process.Patience)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the broker may have closed it
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}
