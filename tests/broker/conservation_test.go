package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
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
			}, l.publish, func() {})
		})
	}
}

// The same holds for messages that an exchange holds, or their queue, while operators move and release them. What is on its way is
// in neither list at times, so that only what comes out says that nothing is lost.
func TestNothingIsLostThatOperatorsMove(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"deadline", "rabbitmq", "lavinmq", "ottermq"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := process.Start(t, "")
			l := ledger{t: t, url: b.URL(), left: map[string]string{}}
			enough := make(chan struct{})
			l.run(amqp091.Table{
				"x-expiry-strategy": strategy, "x-max-priority": 3, "x-single-active-consumer": true, "x-delivery-delay": 38,
				"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
			}, func(name string) { l.schedule(name, enough) }, func() {
				defer close(enough)
				for _, path := range []string{"exchanges/%2F/later/scheduled", "queues/%2F/work/held"} {
					moveSome(t, b, path, 150)
				}
			})
		})
	}
}

// moveSome moves and releases so many held messages, each of which may be gone meanwhile.
func moveSome(t *testing.T, b *process.Process, path string, messages int) {
	t.Helper()
	for moved := 0; moved < messages && !t.Failed(); {
		var list struct{ Items []struct{ ID string } }
		if code, text := manage(t, b, http.MethodGet, path+"?count=20", ""); code != http.StatusOK || json.Unmarshal([]byte(text), &list) != nil {
			t.Fatalf("got %d %s", code, text)
		}
		for _, at := range rand.Perm(len(list.Items))[:min(len(list.Items), 5)] {
			method, one, body := http.MethodPost, path+"/"+list.Items[at].ID, ""
			if rand.IntN(4) == 0 {
				one += "/release"
			} else { // to a time that has passed, too
				method, body = http.MethodPatch, fmt.Sprintf(`{"deliver_at":%d}`, time.Now().UnixMilli()+rand.Int64N(400)-100)
			}
			switch code, text := manage(t, b, method, one, body); code {
			case http.StatusNoContent:
				moved++
			case http.StatusNotFound:
			default:
				t.Fatalf("got %d %s", code, text)
			}
		}
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

// run has publishers and consumers at work until all messages have come out. meanwhile is called once they have begun.
func (l *ledger) run(args amqp091.Table, publish func(name string), meanwhile func()) {
	l.t.Helper()
	const publishers, consumers = 4, 4
	admin := l.dial()
	defer admin.Close()
	ch, err := admin.Channel()
	if err != nil {
		l.t.Fatal(err)
	}
	declare(l.t, ch, "work", args)
	declare(l.t, ch, "dead", nil)
	err = ch.ExchangeDeclare("later", "x-delayed-message", false, false, false, false, amqp091.Table{"x-delayed-type": "fanout"})
	if err == nil {
		err = ch.QueueBind("work", "", "later", false, nil)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	var publishing, consuming sync.WaitGroup
	enough := make(chan struct{})
	for i := range publishers {
		publishing.Go(func() { publish(strconv.Itoa(i)) })
	}
	for range consumers {
		consuming.Go(func() { l.consume(enough) })
	}
	dead, err := ch.Consume("dead", "", true, false, false, false, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	consuming.Go(func() { l.bury(dead, enough) })
	meanwhile()
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
func (l *ledger) publish(name string) {
	const count = 1500
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

// schedule publishes messages that are held, by an exchange, their queue or both one after the other, one at a time until it is enough.
func (l *ledger) schedule(name string, enough <-chan struct{}) {
	conn := l.dial()
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	for i := 0; err == nil; i++ {
		select {
		case <-enough:
			return
		default:
		}
		m := amqp091.Publishing{MessageId: name + "-" + strconv.Itoa(i), Priority: uint8(rand.IntN(4)), Headers: amqp091.Table{}}
		exchange := ""
		if rand.IntN(2) == 0 {
			exchange, m.Headers["x-delay"] = "later", rand.IntN(400)
		}
		if rand.IntN(3) == 0 {
			m.Headers["x-deliver-after"] = rand.IntN(300)
		}
		var confirm *amqp091.DeferredConfirmation
		if confirm, err = ch.PublishWithDeferredConfirm(exchange, "work", false, false, m); err == nil && !confirm.Wait() {
			err = errors.New("a message was refused")
		}
		if err == nil {
			l.mu.Lock()
			l.published++
			l.mu.Unlock()
		}
	}
	l.t.Error(err)
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
