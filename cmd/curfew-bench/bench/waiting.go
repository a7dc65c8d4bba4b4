package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
)

// Ways in which messages wait, the values of --by.
const (
	byTTL      = "ttl"      // in a queue with a dead-letter queue, until they expire
	byExchange = "exchange" // in an exchange of type x-delayed-message, header x-delay
	byHold     = "hold"     // in the queue where they arrive, header x-deliver-after
	byQueue    = "queue"    // for a consumer
)

// choice is one of several words.
type choice struct {
	to  *string
	all []string
}

func (c choice) String() string {
	if c.to == nil {
		return ""
	}
	return *c.to
}

func (c choice) Set(s string) error {
	if !slices.Contains(c.all, s) {
		return errors.New("must be one of " + strings.Join(c.all, ", "))
	}
	*c.to = s
	return nil
}

// waiting registers --by. The first word is the default.
func (f flags) waiting(usage string, all ...string) {
	f.o.by = all[0]
	f.Var(choice{&f.o.by, all}, "by", usage)
}

// held reports whether messages wait for the time in a header; otherwise they wait until they expire.
func (o *options) held() bool { return o.by == byExchange || o.by == byHold }

// waits returns an error if a flag was given that does not fit --by.
func (o *options) waits(given map[string]bool) error {
	if o.held() && given["ttl"] {
		return fmt.Errorf("--ttl: messages do not expire with --by %s; --expiration says how long they wait", o.by)
	}
	return nil
}

// places declares the queue or exchange where messages wait. It returns what to publish, and the queue where due messages arrive.
func (s *session) places() (to content, arrival string, err error) {
	if !s.o.held() {
		queue, dead, err := s.mortal()
		return s.content([]string{queue}, 0), dead, err
	}
	queue, err := s.queue("0")
	if err != nil {
		return content{}, "", err
	}
	to = s.content([]string{queue}, 0)
	to.wait = "x-deliver-after"
	if s.o.by == byExchange {
		to.wait = "x-delay"
		to.exchange, err = s.delayed(queue)
	}
	return to, queue, err
}

// delayed declares an exchange that holds messages, and binds a queue to it.
func (s *session) delayed(queue string) (string, error) {
	x, err := s.exchange("x-delayed-message", amqp.Field{Key: "x-delayed-type", Value: "direct"})
	if err != nil {
		return "", err
	}
	_, err = request[*amqp.QueueBindOK](s.admin, &amqp.QueueBind{Queue: queue, Exchange: x, RoutingKey: queue})
	return x, err
}
