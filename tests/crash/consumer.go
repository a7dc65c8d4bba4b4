package crash

import (
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// maxReadings is how many places a consumer reads from at most.
const maxReadings = 3

// consumer reads from places, all on one channel, and does with the messages what comes to its mind.
type consumer struct {
	*client
	readings []*reading
	prefetch int
	global   bool // for the channel as a whole
	held     []holding
}

// reading is a consumer's reading from one place.
type reading struct {
	place    *place
	session  *session
	held     int
	evidence evidence
}

// held is a delivery that was not answered.
type held struct {
	tag  uint64
	copy *copied
}

// holding is one that a consumer holds.
type holding struct {
	held
	from *reading
}

// consume reads from a place until the broker is gone, with a new channel now and then, on which it may read from others, too.
func consume(c *client, p *place, others []*place) error {
	for {
		k := &consumer{client: c, prefetch: 1 + c.random.IntN(100), readings: []*reading{newReading(p)}}
		if c.random.IntN(2) == 0 {
			k.prefetch = 1 + c.random.IntN(3)
		}
		if c.random.IntN(2) == 0 {
			k.global = c.random.IntN(2) == 0
			k.readMore(others)
		}
		if err := k.run(1 + c.random.IntN(3000)); err != nil {
			return err
		}
		if err := c.open(); err != nil {
			return err
		}
	}
}

func newReading(p *place) *reading { return &reading{place: p, evidence: evidence{at: p}} }

// readMore has the consumer read from further places.
func (k *consumer) readMore(others []*place) {
	first, most := k.readings[0].place, 2+k.random.IntN(maxReadings-1)
	for _, i := range k.random.Perm(len(others)) {
		if p := others[i]; p != first && len(k.readings) < most {
			k.readings = append(k.readings, newReading(p))
		}
	}
}

// run reads n messages, in the order in which they were delivered, and closes the channel.
func (k *consumer) run(n int) error {
	if err := k.Qos(k.prefetch, 0, k.global); err != nil {
		return err
	}
	var from [maxReadings]<-chan amqp091.Delivery // nil ones never deliver
	for i, r := range k.readings {
		var err error
		r.session = k.ledger.open(r.place, false, time.Now())
		if from[i], err = k.Consume(r.place.name, "", false, false, false, false, nil); err != nil {
			return err
		}
	}
	early := map[uint64]delivery{} // those that the library has handed over before others
	for tag := uint64(1); tag <= uint64(n); tag++ {
		for early[tag].from == nil {
			d, ok := k.next(&from)
			if !ok {
				return errGone
			}
			early[d.DeliveryTag] = d
		}
		d := early[tag]
		delete(early, tag)
		if err := k.handle(d.from, &d.Delivery); err != nil {
			return err
		}
	}
	return k.depart()
}

// delivery is one, and where it is from.
type delivery struct {
	amqp091.Delivery
	from *reading
}

// next waits for a delivery from any place.
func (k *consumer) next(from *[maxReadings]<-chan amqp091.Delivery) (d delivery, ok bool) {
	i := 0
	select {
	case d.Delivery, ok = <-from[0]:
	case d.Delivery, ok = <-from[1]:
		i = 1
	case d.Delivery, ok = <-from[2]:
		i = 2
	}
	d.from = k.readings[min(i, len(k.readings)-1)]
	return d, ok
}

// depart closes the channel, which gives back what is held, and what is in the library's hands.
func (k *consumer) depart() error {
	for _, h := range k.held {
		k.ledger.giveBack(h.from.session, []*copied{h.copy}, time.Now())
	}
	return k.leave()
}

func copies(hs []held) (cs []*copied) {
	for _, h := range hs {
		cs = append(cs, h.copy)
	}
	return cs
}

func (k *consumer) handle(r *reading, d *amqp091.Delivery) error {
	c := k.ledger.deliver(r.session, read(d, r.place.origin()))
	if c == nil {
		return d.Ack(false) // the ledger has complained
	}
	k.held = append(k.held, holding{held{d.DeliveryTag, c}, r})
	r.held++
	r.evidence.seen = append(r.evidence.seen, c)
	if err := k.answer(r); err != nil {
		return err
	}
	if len(r.evidence.seen) > 50 {
		return k.prove(&r.evidence)
	}
	return nil
}

// answer may answer some of what is held, and leaves room for more from the place that the last one came from.
func (k *consumer) answer(r *reading) error {
	some := k.random.IntN(len(k.held))
	switch n := k.random.IntN(100); {
	case n < 3:
		return k.ackAll()
	case n < 6 && k.mortal():
		return k.rejectAll()
	case n < 12:
		if err := k.requeue(k.take(some)); err != nil {
			return err
		}
	case n < 20 && k.held[some].from.place.dead != nil:
		if err := k.kill(k.take(some)); err != nil {
			return err
		}
	case n < 90:
		if err := k.accept(k.take(0)); err != nil {
			return err
		}
	}
	for i := 0; i < len(k.held) && (r.held >= k.prefetch || k.global && len(k.held) >= k.prefetch); {
		if !k.global && k.held[i].from != r {
			i++
			continue
		}
		if err := k.accept(k.take(i)); err != nil {
			return err
		}
	}
	return nil
}

// mortal reports whether all that is held may be killed.
func (k *consumer) mortal() bool {
	for _, h := range k.held {
		if h.from.place.dead == nil {
			return false
		}
	}
	return true
}

// take takes a delivery out of those held.
func (k *consumer) take(i int) holding {
	h := k.held[i]
	k.held = append(k.held[:i], k.held[i+1:]...)
	h.from.held--
	return h
}

// takeAll takes all that is held, and returns the number of the last.
func (k *consumer) takeAll(each func(holding)) (last uint64) {
	for _, h := range k.held {
		each(h)
		h.from.held--
		last = max(last, h.tag)
	}
	k.held = k.held[:0]
	return last
}

func (k *consumer) accept(h holding) error {
	k.acked(h)
	return k.Ack(h.tag, false)
}

func (k *consumer) acked(h holding) {
	k.ledger.acknowledge(h.from.session, h.copy, time.Now())
	h.from.evidence.acked = append(h.from.evidence.acked, h.copy)
}

func (k *consumer) requeue(h holding) error {
	k.ledger.giveBack(h.from.session, []*copied{h.copy}, time.Now())
	return k.Nack(h.tag, false, true)
}

func (k *consumer) kill(h holding) error {
	k.ledger.reject(h.from.session, h.copy, time.Now())
	return k.Reject(h.tag, false)
}

func (k *consumer) ackAll() error { return k.Ack(k.takeAll(k.acked), true) }

func (k *consumer) rejectAll() error {
	last := k.takeAll(func(h holding) { k.ledger.reject(h.from.session, h.copy, time.Now()) })
	return k.Nack(last, true, false)
}
