package crash

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// errGone is returned when the broker, or the connection to it, is gone.
var errGone = errors.New("the broker is gone")

// client is one connection with one channel, on which publishes are confirmed. Its methods are for one goroutine.
type client struct {
	*amqp091.Channel
	ledger *ledger
	conn   *amqp091.Connection
	gate   *gate
	url    string // of the broker, or the node, that it is connected to
	number int    // tells clients apart, over all lives
	random *rand.Rand

	window    chan struct{} // has an element for each message that is not confirmed
	listening sync.WaitGroup
	gone      chan struct{} // closed when nothing more comes from the broker

	mu      sync.Mutex // guards pending
	pending []pending  // by number of publishing, less 1
}

// pending is a message under way, and what its confirm will prove.
type pending struct {
	m *message
	e *evidence
}

// maxWindow is how many messages a client has under way at most.
const maxWindow = 200

func dial(l *ledger, g *gate, url string, number int, random *rand.Rand) (*client, error) {
	conn, err := amqp091.DialConfig(url, amqp091.Config{Locale: "en_US", Dial: g.dial})
	if err != nil {
		return nil, err
	}
	c := &client{ledger: l, conn: conn, gate: g, url: url, number: number, random: random}
	if err := c.open(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// open opens a channel, after the one before was closed.
func (c *client) open() (err error) {
	if c.Channel, err = c.conn.Channel(); err != nil {
		return err
	}
	c.window, c.gone, c.pending = make(chan struct{}, 1+c.random.IntN(maxWindow)), make(chan struct{}), nil
	c.listen(c.Channel)
	confirms := c.NotifyPublish(make(chan amqp091.Confirmation, maxWindow))
	c.listening.Go(func() { c.confirmed(confirms) })
	return c.Confirm(false)
}

func (c *client) listen(ch *amqp091.Channel) {
	returns, closed := ch.NotifyReturn(make(chan amqp091.Return, 1)), ch.NotifyClose(make(chan *amqp091.Error, 1))
	c.listening.Go(func() { c.watch(returns, closed) })
}

// watch complains of what does not happen as long as all is well.
func (c *client) watch(returns <-chan amqp091.Return, closed <-chan *amqp091.Error) {
	for r := range returns {
		c.ledger.complain("unroutable: message %s to exchange %q, key %q: %s", r.MessageId, r.Exchange, r.RoutingKey, r.ReplyText)
	}
	for err := range closed {
		if err != nil && err.Server && err.Code != amqp091.ConnectionForced && !c.ledger.isEnding() {
			c.ledger.complain("client %d: the broker closed its channel: %v", c.number, err)
		}
	}
}

func (c *client) confirmed(confirms <-chan amqp091.Confirmation) {
	defer close(c.gone)
	for a := range confirms {
		c.mu.Lock()
		p := c.pending[a.DeliveryTag-1]
		c.mu.Unlock()
		<-c.window
		if !a.Ack {
			c.ledger.complain("refused: message %d", p.m.id)
			continue
		}
		now := time.Now()
		c.ledger.confirm(p.m, now)
		if p.e != nil {
			c.ledger.prove(p.e, now)
		}
	}
}

// publish publishes a message on a route. It does not wait for the confirm, which will prove e.
func (c *client) publish(r *route, m message, e *evidence) error {
	select {
	case c.window <- struct{}{}:
	case <-c.gone:
		return errGone
	}
	m.from, m.via = c.number, c.url
	sent := c.ledger.send(m, r.to, time.Now())
	c.mu.Lock()
	c.pending = append(c.pending, pending{sent, e})
	c.mu.Unlock()
	return c.PublishWithContext(context.Background(), r.exchange, r.key, true, false, publishing(sent))
}

// prove publishes a message behind what it is to prove, and forgets the evidence. Of what the broker reads at one go it may
// publish first and settle then; an answer to anything lies between two such goes.
func (c *client) prove(e *evidence) error {
	if err := c.Flow(true); err != nil {
		return err
	}
	proof := *e
	*e = evidence{at: e.at}
	return c.publish(e.at.straight(), message{size: 8}, &proof)
}

// settle waits until all is confirmed that was published.
func (c *client) settle() error {
	for range cap(c.window) {
		select {
		case c.window <- struct{}{}:
		case <-c.gone:
			return errGone
		}
	}
	for range cap(c.window) {
		<-c.window
	}
	return nil
}

// leave closes the channel.
func (c *client) leave() error {
	err := c.Close()
	c.listening.Wait()
	return err
}

// close closes the connection and returns when nothing more happens on it.
func (c *client) close() {
	_ = c.conn.Close() // the broker may be gone
	c.listening.Wait()
}

func publishing(m *message) amqp091.Publishing {
	p := amqp091.Publishing{
		MessageId: strconv.FormatUint(m.id, 10), Priority: m.priority, DeliveryMode: amqp091.Persistent,
		Headers: amqp091.Table{"size": int64(m.size)}, Body: body(m.id, m.size),
	}
	if m.transient {
		p.DeliveryMode = amqp091.Transient
	}
	if m.delay > 0 {
		p.Headers[m.header()] = m.delay.Milliseconds()
	}
	if m.lifetime > 0 {
		p.Expiration = strconv.FormatInt(m.lifetime.Milliseconds(), 10)
	}
	return p
}

// header says how long the message is held.
func (m *message) header() string {
	if m.scheduled {
		return "x-delay"
	}
	return "x-deliver-after"
}

// body returns size bytes that no other message has, at least 8.
func body(id uint64, size int) []byte {
	b := make([]byte, 0, size+8)
	for word := id; len(b) < size; word = word*6364136223846793005 + 1442695040888963407 {
		b = binary.LittleEndian.AppendUint64(b, word)
	}
	return b[:size]
}

// read makes out what a delivery is.
func read(d *amqp091.Delivery, home *place) arrival {
	a := arrival{redelivered: d.Redelivered, at: time.Now()}
	a.id, _ = strconv.ParseUint(d.MessageId, 10, 64)
	size, _ := d.Headers["size"].(int64)
	if !bytes.Equal(d.Body, body(a.id, int(size))) {
		a.damaged = "its body is not what was sent"
	}
	deaths, _ := d.Headers["x-death"].([]any)
	for i, entry := range deaths {
		death, _ := entry.(amqp091.Table)
		reason, _ := death["reason"].(string)
		if i == 0 {
			a.reason = reason
		}
		if queue, _ := death["queue"].(string); reason == "rejected" && queue == home.name {
			n, _ := death["count"].(int64)
			a.rejections = int(n)
		}
	}
	return a
}
