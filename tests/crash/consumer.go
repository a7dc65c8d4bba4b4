package crash

import (
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// consumer reads from a place and does with the messages what comes to its mind.
type consumer struct {
	*client
	place    *place
	session  *session
	prefetch int
	held     []held
	evidence evidence
}

// held is a delivery that was not answered.
type held struct {
	tag  uint64
	copy *copied
}

// consume reads from a place until the broker is gone, with a new channel now and then.
func consume(c *client, p *place) error {
	for {
		k := &consumer{client: c, place: p, prefetch: 1 + c.random.IntN(100), evidence: evidence{at: p}}
		if err := k.run(1 + c.random.IntN(3000)); err != nil {
			return err
		}
		if err := c.open(); err != nil {
			return err
		}
	}
}

// run reads n messages and closes the channel.
func (k *consumer) run(n int) error {
	if err := k.Qos(k.prefetch, 0, false); err != nil {
		return err
	}
	k.session = k.ledger.open(k.place, false, time.Now())
	ds, err := k.Consume(k.place.name, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for d := range ds {
		if err := k.handle(&d); err != nil {
			return err
		}
		if n--; n == 0 {
			return k.depart()
		}
	}
	return errGone
}

// depart closes the channel, which gives back what is held, and what is in the library's hands.
func (k *consumer) depart() error {
	k.ledger.giveBack(k.session, copies(k.held), time.Now())
	return k.leave()
}

func copies(hs []held) (cs []*copied) {
	for _, h := range hs {
		cs = append(cs, h.copy)
	}
	return cs
}

func (k *consumer) handle(d *amqp091.Delivery) error {
	c := k.ledger.deliver(k.session, read(d, k.place.origin()))
	if c == nil {
		return d.Ack(false) // the ledger has complained
	}
	k.held = append(k.held, held{d.DeliveryTag, c})
	k.evidence.seen = append(k.evidence.seen, c)
	if err := k.answer(); err != nil {
		return err
	}
	if len(k.evidence.seen) > 50 {
		return k.prove(&k.evidence)
	}
	return nil
}

// answer may answer some of what is held, and leaves room for more.
func (k *consumer) answer() error {
	n := k.random.IntN(100)
	switch {
	case n < 3:
		return k.ackAll()
	case n < 6 && k.place.dead != nil:
		return k.rejectAll()
	case n < 12:
		return k.requeue(k.take(k.random.IntN(len(k.held))))
	case n < 20 && k.place.dead != nil:
		return k.kill(k.take(k.random.IntN(len(k.held))))
	case n < 90 || len(k.held) >= k.prefetch:
		return k.accept(k.take(0))
	}
	return nil
}

// take takes a delivery out of those held.
func (k *consumer) take(i int) held {
	h := k.held[i]
	k.held = append(k.held[:i], k.held[i+1:]...)
	return h
}

func (k *consumer) accept(h held) error {
	k.ledger.acknowledge(k.session, h.copy, time.Now())
	k.evidence.acked = append(k.evidence.acked, h.copy)
	return k.Ack(h.tag, false)
}

func (k *consumer) requeue(h held) error {
	k.ledger.giveBack(k.session, []*copied{h.copy}, time.Now())
	return k.Nack(h.tag, false, true)
}

func (k *consumer) kill(h held) error {
	k.ledger.reject(k.session, h.copy, time.Now())
	return k.Reject(h.tag, false)
}

func (k *consumer) ackAll() error {
	for _, h := range k.held {
		k.ledger.acknowledge(k.session, h.copy, time.Now())
	}
	k.evidence.acked = append(k.evidence.acked, copies(k.held)...)
	last := k.held[len(k.held)-1].tag
	k.held = k.held[:0]
	return k.Ack(last, true)
}

func (k *consumer) rejectAll() error {
	for _, h := range k.held {
		k.ledger.reject(k.session, h.copy, time.Now())
	}
	last := k.held[len(k.held)-1].tag
	k.held = k.held[:0]
	return k.Nack(last, true, false)
}
