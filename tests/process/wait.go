package process

import (
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// Patience is how long tests wait for what has to happen. Nothing takes that long unless it is broken.
const Patience = 2 * time.Minute

// nap is what patience is counted in by those who count: a machine that stands still for minutes, and lets the broker do nothing
// either, takes no more than one off it.
const nap = 100 * time.Millisecond

// Receive receives from c, or finds that it is closed. It is not in time once Patience is over.
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

// Poll asks again and again whether something is so, until it is, and then returns true; or false, once Patience is over.
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

// Dial connects RabbitMQ's Go client, which would give up sooner than these tests do, and soon miss heartbeats.
func Dial(url string) (*amqp091.Connection, error) {
	return amqp091.DialConfig(url, amqp091.Config{Locale: "en_US", Dial: amqp091.DefaultDial(Patience)})
}
