package process

import (
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// Patience is how long tests wait for an event. Nothing takes that long unless it is broken.
const Patience = 2 * time.Minute

// nap is the unit in which patience is counted: a machine that stands still for minutes, together with the broker, uses up
// only one of them.
const nap = 100 * time.Millisecond

// Receive receives from c, or notices that it is closed. inTime is false once Patience is over.
func Receive[T any](c <-chan T) (v T, open, inTime bool) {
	for range Patience / nap {
		select {
		case v, open = <-c:
			return v, open, true
		case <-time.After(nap):
		}
	}
	return v, false, false
}

// Poll repeats a check until it reports true, and returns true; or false, once Patience is over.
func Poll(so func() bool) bool {
	for spent := time.Duration(0); spent < Patience; {
		began := time.Now()
		if so() {
			return true
		}
		time.Sleep(nap / 20)
		spent += min(nap, time.Since(began))
	}
	return false
}

// Dial connects RabbitMQ's Go client, with longer timeouts and heartbeats than its own.
func Dial(url string) (*amqp091.Connection, error) {
	return amqp091.DialConfig(url, amqp091.Config{Locale: "en_US", Dial: amqp091.DefaultDial(Patience)})
}
