package crash

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// publisher publishes in bursts until the broker is gone.
func publisher(c *client, l *layout) error {
	leisurely := c.random.IntN(5) > 0
	for {
		if err := c.burst(l); err != nil {
			return err
		}
		if leisurely {
			pause(c.random)
		}
	}
}

// burst publishes a few messages on a route.
func (c *client) burst(l *layout) error {
	r := &l.routes[c.random.IntN(len(l.routes))]
	for range 1 + c.random.IntN(10) {
		if err := c.publish(r, anyMessage(c.random, r), nil); err != nil {
			return err
		}
	}
	return nil
}

// transactor publishes in transactions, until the broker is gone.
func transactor(c *client, l *layout) error {
	ch, err := c.conn.Channel()
	if err != nil {
		return err
	}
	c.listen(ch)
	if err := ch.Tx(); err != nil {
		return err
	}
	for {
		if err := c.transact(ch, l, 1+c.random.IntN(20)); err != nil {
			return err
		}
		pause(c.random)
	}
}

// transact publishes n messages in a transaction.
func (c *client) transact(ch *amqp091.Channel, l *layout, n int) error {
	sent := make([]*message, n)
	for i := range sent {
		r := &l.routes[c.random.IntN(len(l.routes))]
		m := anyMessage(c.random, r)
		m.from, m.via = c.number, c.url
		sent[i] = c.ledger.send(m, r.to, time.Now())
		if err := ch.PublishWithContext(context.Background(), r.exchange, r.key, true, false, publishing(sent[i])); err != nil {
			return err
		}
	}
	if err := ch.TxCommit(); err != nil {
		return err
	}
	for _, m := range sent {
		c.ledger.confirm(m, time.Now())
	}
	return nil
}

// pause waits a moment.
func pause(random *rand.Rand) { time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond) }

// anyMessage makes up a message that can be sent on a route.
func anyMessage(random *rand.Rand, r *route) message {
	m := message{size: 8 + random.IntN(1<<10), transient: random.IntN(20) == 0, priority: uint8(random.IntN(5))}
	switch n := random.IntN(200); {
	case n == 0:
		m.size = random.IntN(256 << 10)
	case n < 10:
		m.size = random.IntN(16 << 10)
	}
	if r.expirations && random.IntN(4) == 0 {
		m.lifetime = time.Duration(20+random.IntN(3000)) * time.Millisecond
	}
	if r.holds && random.IntN(5) > 0 {
		m.delay, m.scheduled = anyDelay(random), r.exchange == later
	}
	return m
}

// anyDelay is mostly so short that the broker releases the message before it ends, and sometimes longer than the broker lives.
func anyDelay(random *rand.Rand) time.Duration {
	longest := 400
	if random.IntN(4) == 0 {
		longest = 3000
	}
	return time.Duration(1+random.IntN(longest)) * time.Millisecond
}
