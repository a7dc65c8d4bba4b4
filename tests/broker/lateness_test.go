package broker

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// waiting is a way in which messages wait for a time. Each has its own queues.
type waiting struct {
	name    string
	declare func(ch *amqp091.Channel) error
	to      string // the exchange to publish to
	key     string
	message func(ms int) amqp091.Publishing
	from    string // the queue in which a message is seen when its time has come
	most    int    // milliseconds that a message may wait
	again   bool   // it is seen when it was delivered again, and all wait for as long
}

var waits = []waiting{
	{
		name: "deadlines", key: "work", from: "dead", most: 1000,
		declare: func(ch *amqp091.Channel) error {
			if _, err := ch.QueueDeclare("dead", false, false, false, false, nil); err != nil {
				return err
			}
			_, err := ch.QueueDeclare("work", false, false, false, false, amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
			return err
		},
		message: func(ms int) amqp091.Publishing { return amqp091.Publishing{Expiration: strconv.Itoa(ms)} },
	},
	{
		name: "holds of a queue", key: "q", from: "q", most: 1000,
		declare: func(ch *amqp091.Channel) error {
			_, err := ch.QueueDeclare("q", false, false, false, false, nil)
			return err
		},
		message: func(ms int) amqp091.Publishing {
			return amqp091.Publishing{Headers: amqp091.Table{"x-deliver-after": int64(ms)}}
		},
	},
	{
		name: "holds of an exchange", to: "later", key: "k", from: "q", most: 1000,
		declare: func(ch *amqp091.Channel) error {
			if err := ch.ExchangeDeclare("later", "x-delayed-message", false, false, false, false, amqp091.Table{"x-delayed-type": "direct"}); err != nil {
				return err
			}
			if _, err := ch.QueueDeclare("q", false, false, false, false, nil); err != nil {
				return err
			}
			return ch.QueueBind("q", "k", "later", false, nil)
		},
		message: func(ms int) amqp091.Publishing {
			return amqp091.Publishing{Headers: amqp091.Table{"x-delay": int64(ms)}}
		},
	},
	{
		name: "delivery leases", key: "q", from: "q", most: 1000, again: true,
		declare: func(ch *amqp091.Channel) error {
			_, err := ch.QueueDeclare("q", false, false, false, false, amqp091.Table{"x-delivery-lease": int64(1000)})
			return err
		},
		message: func(int) amqp091.Publishing { return amqp091.Publishing{} },
	},
}

// No message is seen before its time, in whatever order the times come, and none is forgotten: with nothing else to do, a broker that did
// not wake up for one would not see it until the client is out of patience. How late they are is for benchmarks to say.
func TestNeverEarly(t *testing.T) {
	t.Parallel()
	for _, w := range waits {
		t.Run(w.name, func(t *testing.T) {
			late := w.measure(t, 2000)
			slices.Sort(late)
			t.Logf("lateness: first %v, median %v, 99 %% below %v", late[0], late[len(late)/2], late[len(late)*99/100])
			if late[0] < 0 {
				t.Errorf("a message was there %v before its time", -late[0])
			}
		})
	}
}

// measure publishes n messages that wait for random times, and returns how long after its time each was seen, which some are while others
// are still being published. The clock starts before a message is sent.
func (w *waiting) measure(t *testing.T, n int) []time.Duration {
	t.Helper()
	conn, err := process.Dial(process.Start(t, "").URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.declare(ch); err != nil {
		t.Fatal(err)
	}
	seen, err := ch.Consume(w.from, "", !w.again, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	type arrival struct {
		amqp091.Delivery
		at time.Time
	}
	arrivals := make(chan arrival, 2*n)
	go func() {
		defer close(arrivals)
		for d := range seen {
			arrivals <- arrival{d, time.Now()}
		}
	}()
	times := make([]time.Time, n)
	for i := range times {
		ms := w.most
		if !w.again {
			ms = 50 + rand.IntN(w.most-50)
		}
		times[i] = time.Now().Add(time.Duration(ms) * time.Millisecond)
		m := w.message(ms)
		m.MessageId = strconv.Itoa(i)
		if err := ch.PublishWithContext(t.Context(), w.to, w.key, false, false, m); err != nil {
			t.Fatal(err)
		}
	}
	late := make([]time.Duration, 0, n)
	for had := make([]bool, n); len(late) < n; {
		d := await(t, arrivals, "a message whose time has come")
		i, err := strconv.Atoi(d.MessageId)
		if err != nil {
			t.Fatal(err)
		}
		if w.again && !d.Redelivered || had[i] {
			continue
		}
		had[i] = true
		late = append(late, d.at.Sub(times[i]))
	}
	return late
}

func declare(t *testing.T, ch *amqp091.Channel, name string, args amqp091.Table) {
	t.Helper()
	if _, err := ch.QueueDeclare(name, false, false, false, false, args); err != nil {
		t.Fatal(err)
	}
}
