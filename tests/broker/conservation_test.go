package broker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// Whatever clients do, and however they end: every confirmed message comes out exactly once, acknowledged or dead-lettered.
func TestNothingIsLostOrDoubled(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"deadline", "rabbitmq", "lavinmq", "ottermq"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			l := ledger{t: t, url: process.Start(t, "").URL(), left: map[string]string{}}
			l.run(amqp091.Table{
				"x-expiry-strategy": strategy, "x-max-priority": 3,
				"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
			})
		})
	}
}

// ledger is what a test knows of its messages.
type ledger struct {
	t   *testing.T
	url string

	mu        sync.Mutex // guards what follows
	published int
	left      map[string]string // how each message left, by id
}

func (l *ledger) run(args amqp091.Table) {
	l.t.Helper()
	const publishers, consumers, each = 4, 4, 1500
	admin := l.dial()
	defer admin.Close()
	ch, err := admin.Channel()
	if err != nil {
		l.t.Fatal(err)
	}
	declare(l.t, ch, "work", args)
	declare(l.t, ch, "dead", nil)
	var publishing, consuming sync.WaitGroup
	enough := make(chan struct{})
	for i := range publishers {
		publishing.Go(func() { l.publish(strconv.Itoa(i), each) })
	}
	for range consumers {
		consuming.Go(func() { l.consume(enough) })
	}
	dead, err := ch.Consume("dead", "", true, false, false, false, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	consuming.Go(func() { l.bury(dead, enough) })
	publishing.Wait()
	_ = process.Poll(func() bool { return !l.open() }) // settle says what is still open
	close(enough)
	consuming.Wait()
	l.settle(ch)
}

// settle compares what went in with what came out.
func (l *ledger) settle(ch *amqp091.Channel) {
	l.t.Helper()
	if l.published != len(l.left) {
		l.t.Errorf("%d messages were published, %d came out", l.published, len(l.left))
	}
	ways := map[string]int{}
	for _, way := range l.left {
		ways[way]++
	}
	l.t.Log(ways)
	for _, name := range []string{"work", "dead"} {
		q, err := ch.QueueDeclarePassive(name, false, false, false, false, nil)
		if err != nil {
			l.t.Fatal(err)
		}
		if q.Messages > 0 {
			l.t.Errorf("queue %s still has %d messages", name, q.Messages)
		}
	}
}

// open reports whether messages are still somewhere in the broker.
func (l *ledger) open() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.left) < l.published
}

func (l *ledger) leaves(id, way string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, ok := l.left[id]; ok {
		l.t.Errorf("message %s left twice: %s, then %s", id, before, way)
	}
	l.left[id] = way
}

func (l *ledger) dial() *amqp091.Connection {
	l.t.Helper()
	conn, err := process.Dial(l.url)
	if err != nil {
		l.t.Fatal(err)
	}
	return conn
}

// publish publishes messages, some of them with a short life, and waits until they are confirmed.
func (l *ledger) publish(name string, count int) {
	conn := l.dial()
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	var last *amqp091.DeferredConfirmation
	for i := 0; i < count && err == nil; i++ {
		m := amqp091.Publishing{MessageId: name + "-" + strconv.Itoa(i), Priority: uint8(rand.IntN(4)), Body: make([]byte, rand.IntN(300))}
		if rand.IntN(3) == 0 {
			m.Expiration = strconv.Itoa(rand.IntN(100))
		}
		last, err = ch.PublishWithDeferredConfirm("", "work", false, false, m)
	}
	if err != nil {
		l.t.Error(err)
		return
	}
	last.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.published += count
}

// consume works in sessions that end in different ways, until it is enough.
func (l *ledger) consume(enough <-chan struct{}) {
	for {
		select {
		case <-enough:
			return
		default:
		}
		if err := l.work(rand.IntN(200), enough); err != nil {
			l.t.Error(err)
			return
		}
	}
}

// work handles up to n messages in a session of its own, and keeps some to the end of it, which may be abrupt.
func (l *ledger) work(n int, enough <-chan struct{}) error {
	var socket net.Conn
	conn, err := amqp091.DialConfig(l.url, amqp091.Config{Dial: func(network, address string) (_ net.Conn, err error) {
		socket, err = net.Dial(network, address)
		return socket, err
	}})
	if err != nil {
		return err
	}
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(1+rand.IntN(50), 0, false); err != nil {
		return err
	}
	ds, err := ch.Consume("work", "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	idle := time.NewTimer(50 * time.Millisecond)
	defer idle.Stop()
	for range n {
		select {
		case d, ok := <-ds:
			if !ok {
				return errors.New("the deliveries ended")
			}
			if err := l.handle(d); err != nil {
				return err
			}
			continue
		case <-enough:
		case <-idle.C:
		}
		break
	}
	return part(conn, ch, socket)
}

// handle does something with a message, or nothing.
func (l *ledger) handle(d amqp091.Delivery) error {
	switch rand.IntN(10) {
	case 0:
		return d.Nack(false, true)
	case 1:
		return d.Reject(false) // comes out dead-lettered
	case 2:
		return nil // comes back at the end of the session
	default:
		l.leaves(d.MessageId, "acknowledged")
		return d.Ack(false)
	}
}

// part ends a session: in order, or by cutting it off when the broker has surely read what was sent.
func part(conn *amqp091.Connection, ch *amqp091.Channel, socket net.Conn) error {
	if rand.IntN(2) == 0 {
		return conn.Close()
	}
	if _, err := ch.QueueDeclarePassive("dead", false, false, false, false, nil); err != nil {
		return err
	}
	if err := socket.Close(); err != nil {
		return err
	}
	<-conn.NotifyClose(make(chan *amqp091.Error, 1))
	return nil
}

// bury notes what is dead-lettered.
func (l *ledger) bury(dead <-chan amqp091.Delivery, enough <-chan struct{}) {
	for {
		select {
		case d := <-dead:
			deaths, _ := d.Headers["x-death"].([]any)
			if len(deaths) != 1 || d.Expiration != "" {
				l.t.Errorf("message %s was dead-lettered with expiration %q and x-death %v", d.MessageId, d.Expiration, deaths)
			}
			l.leaves(d.MessageId, fmt.Sprint(d.Headers["x-first-death-reason"]))
		case <-enough:
			return
		}
	}
}
