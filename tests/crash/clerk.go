package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/rabbitmq/amqp091-go"
)

// clerk has a queue of its own, does one thing after the other to it, and knows exactly what must be in it: the queue and its
// binding come and go, messages are published, acknowledged and purged. It lives longer than the broker. One goroutine uses it at
// a time.
type clerk struct {
	queue  string
	exists fact
	bound  fact
	doomed bool    // it is being deleted: its messages may be gone, all of them, though it is not yet
	last   int     // number of the last message
	list   []entry // of messages, in order
}

// fact is whether something is so.
type fact uint8

const (
	no fact = iota
	maybe
	yes
)

// entry is a message of the clerk.
type entry struct {
	number int
	came   fact // maybe: it is not confirmed
	left   fact // maybe: it was acknowledged or purged, and comes back if the broker is killed now
}

// desk is a clerk at work.
type desk struct {
	*clerk
	*amqp091.Channel
	conn   *amqp091.Connection
	ledger *ledger
	random *rand.Rand
}

const clerks = "clerks" // a direct exchange

// work does what a clerk does until the broker is gone, after a look at what is there.
func (k *clerk) work(c *client) error {
	ch, err := c.conn.Channel()
	if err != nil {
		return err
	}
	c.listen(ch)
	d := &desk{k, ch, c.conn, c.ledger, c.random}
	if err := d.Confirm(false); err != nil {
		return err
	}
	if err := d.ExchangeDeclare(clerks, "direct", true, false, false, false, nil); err != nil {
		return err
	}
	if err := d.check(); err != nil {
		return err
	}
	for {
		if err := d.act(); err != nil {
			return err
		}
	}
}

func (d *desk) act() error {
	if d.exists == no {
		return d.declare()
	}
	switch n := d.random.IntN(100); {
	case n < 55:
		return d.publishOne("", d.queue)
	case n < 85:
		return d.fetchOne()
	case n < 88:
		return d.purge()
	case n < 90:
		return d.remove()
	case d.bound == no:
		return d.bind()
	case n < 95:
		return d.publishOne(clerks, d.queue)
	}
	return d.unbind()
}

// attempt runs what makes a fact f become to; it is uncertain until it has succeeded.
func attempt(f *fact, to fact, err func() error) error {
	*f = maybe
	if e := err(); e != nil {
		return e
	}
	*f = to
	return nil
}

func (d *desk) declare() error {
	d.list, d.bound = nil, no
	return attempt(&d.exists, yes, func() error {
		_, err := d.QueueDeclare(d.queue, true, false, false, false, nil)
		return err
	})
}

func (d *desk) remove() error {
	d.bound, d.doomed = maybe, true
	err := attempt(&d.exists, no, func() error {
		_, err := d.QueueDelete(d.queue, false, false, false)
		return err
	})
	if err == nil {
		d.list, d.bound, d.doomed = nil, no, false
	}
	return err
}

func (d *desk) bind() error {
	return attempt(&d.bound, yes, func() error { return d.QueueBind(d.queue, d.queue, clerks, false, nil) })
}

func (d *desk) unbind() error {
	return attempt(&d.bound, no, func() error { return d.QueueUnbind(d.queue, d.queue, clerks, nil) })
}

// publishOne publishes a message and waits for its confirm, which settles what was done before, if that was read before.
func (d *desk) publishOne(exchange, key string) error {
	if err := d.Flow(true); err != nil {
		return err
	}
	if err := d.publish(d.Channel, exchange, key); err != nil {
		return err
	}
	d.list = slices.DeleteFunc(d.list, func(e entry) bool { return e.left == maybe })
	return nil
}

// publish adds a message to the list.
func (d *desk) publish(ch *amqp091.Channel, exchange, key string) error {
	d.last++
	d.list = append(d.list, entry{number: d.last, came: maybe})
	m := amqp091.Publishing{DeliveryMode: amqp091.Persistent, MessageId: strconv.Itoa(d.last)}
	sent, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, m)
	if err != nil {
		return err
	}
	if ok, err := sent.WaitContext(context.Background()); !ok || err != nil {
		return errGone
	}
	d.list[len(d.list)-1].came = yes
	return nil
}

// fetchOne takes the first message, and keeps it or gives it back.
func (d *desk) fetchOne() error {
	got, ok, err := d.Get(d.queue, false)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(d.list, func(e entry) bool { return e.left == no })
	switch {
	case i < 0 && !ok:
		return nil
	case i < 0 || !ok || got.MessageId != strconv.Itoa(d.list[i].number):
		d.ledger.complain("%s: got %q, %v; it should have %v", d.queue, got.MessageId, ok, d.list)
		return errors.New("nothing is as it should be")
	case d.random.IntN(4) == 0:
		return got.Nack(false, true)
	}
	d.list[i].left = maybe
	return got.Ack(false)
}

func (d *desk) purge() error {
	for i := range d.list {
		d.list[i].left = maybe
	}
	_, err := d.QueuePurge(d.queue, false)
	return err
}

// check compares what is there after the broker has started with what should be.
func (d *desk) check() error {
	exists, err := d.present()
	if err != nil {
		return err
	}
	if d.exists != maybe && exists != (d.exists == yes) {
		d.ledger.complain("%s: exists: %v, which it should not be", d.queue, exists)
	}
	if !exists {
		d.exists, d.bound, d.doomed, d.list = no, no, false, nil
		return nil
	}
	if err := d.count(); err != nil {
		return err
	}
	d.exists = yes
	return d.checkBinding()
}

// present asks whether the queue is there, on a channel that does not survive it if it is not.
func (d *desk) present() (bool, error) {
	ch, err := d.conn.Channel()
	if err != nil {
		return false, err
	}
	_, err = ch.QueueDeclarePassive(d.queue, true, false, false, false, nil)
	var refused *amqp091.Error
	if errors.As(err, &refused) && refused.Code == amqp091.NotFound {
		return false, nil
	}
	return true, errors.Join(err, ch.Close())
}

// count compares the queue's messages with the list, which is made certain.
func (d *desk) count() error {
	ch, err := d.conn.Channel()
	if err != nil {
		return err
	}
	var found []int
	for {
		got, ok, err := ch.Get(d.queue, false)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		n, _ := strconv.Atoi(got.MessageId)
		found = append(found, n)
	}
	if emptied := d.doomed && len(found) == 0; !emptied && !plausible(found, d.list) {
		d.ledger.complain("%s: has %v; it should have %v", d.queue, found, d.list)
	}
	d.list, d.doomed = nil, false
	for _, n := range found {
		d.list = append(d.list, entry{number: n, came: yes})
	}
	return ch.Close()
}

// plausible reports whether found is what may be left of a list.
func plausible(found []int, list []entry) bool {
	for _, e := range list {
		switch {
		case len(found) > 0 && found[0] == e.number:
			found = found[1:]
		case e.came == yes && e.left == no:
			return false
		}
	}
	return len(found) == 0
}

// checkBinding publishes to the exchange; a message that leads nowhere comes back before it is confirmed.
func (d *desk) checkBinding() error {
	ch, err := d.conn.Channel()
	if err != nil {
		return err
	}
	returns := ch.NotifyReturn(make(chan amqp091.Return, 1))
	if err := ch.Confirm(false); err != nil {
		return err
	}
	if err := d.publish(ch, clerks, d.queue); err != nil {
		return err
	}
	bound := len(returns) == 0
	if d.bound != maybe && bound != (d.bound == yes) {
		d.ledger.complain("%s: bound: %v, which it should not be", d.queue, bound)
	}
	d.bound = yes
	if !bound {
		d.bound, d.list = no, d.list[:len(d.list)-1]
	}
	return ch.Close()
}

func (e entry) String() string {
	text := strconv.Itoa(e.number)
	if e.came != yes {
		text += fmt.Sprintf("(came: %v)", e.came)
	}
	if e.left != no {
		text += fmt.Sprintf("(left: %v)", e.left)
	}
	return text
}

func (f fact) String() string { return [...]string{"no", "maybe", "yes"}[f] }
