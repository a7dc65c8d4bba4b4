package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// secretary has an exchange of its own that holds messages, and a queue bound to it. It schedules messages with identities, replaces and
// cancels them, and deletes the exchange, one thing after the other, and knows what may come and what must. It lives longer than the
// broker. One goroutine uses it at a time.
type secretary struct {
	name   string // of the exchange and of the queue
	exact  bool   // both are in one log, so that what is released is never in two places
	exists fact   // the exchange
	life   int
	last   int
	all    map[int]*appointment // by number, until they are over
	latest [identities]*appointment
}

// identities is how many a secretary has.
const identities = 8

// appointment is a message that a secretary schedules.
type appointment struct {
	number, identity int
	due              time.Time // not before
	came             fact      // yes: it is confirmed
	cancelled        fact      // or replaced, or its exchange is deleted
	seen             fact      // maybe: that it was taken from the queue may be forgotten when the broker is killed
	life             int       // when it was seen
	doubled          bool      // a crash may have left it in the exchange and in the queue
	story            []string
}

func newSecretary(name string, exact bool) *secretary {
	return &secretary{name: name, exact: exact, all: map[int]*appointment{}}
}

func (a *appointment) note(format string, args ...any) {
	a.story = append(a.story, time.Now().Format("05.000000 ")+fmt.Sprintf(format, args...))
}

func (a *appointment) String() string {
	return fmt.Sprintf("appointment %d (identity %d), due %s, came %v, cancelled %v, seen %v\n\t%s", a.number, a.identity,
		a.due.Format("05.000000"), a.came, a.cancelled, a.seen, strings.Join(a.story, "\n\t"))
}

// planner is a secretary at work.
type planner struct {
	*secretary
	*amqp091.Channel
	ledger  *ledger
	random  *rand.Rand
	returns chan amqp091.Return
}

// work does what a secretary does until the broker is gone, after a look at what has come.
func (s *secretary) work(c *client) error {
	p, err := s.begin(c)
	if err != nil {
		return err
	}
	if err := p.await(); err != nil {
		return err
	}
	for {
		if err := p.act(); err != nil {
			return err
		}
	}
}

// finish waits for all that has to come, and forgets it.
func (s *secretary) finish(c *client) error {
	p, err := s.begin(c)
	if err != nil {
		return err
	}
	for _, a := range s.all {
		time.Sleep(time.Until(a.due.Add(p.ledger.slack())))
	}
	if err := p.await(); err != nil {
		return err
	}
	if err := p.schedule(0, time.Millisecond); err != nil { // behind all that was taken, so that none of it comes back
		return err
	}
	time.Sleep(100 * time.Millisecond)
	if err := p.await(); err != nil {
		return err
	}
	if s.exact { // with several logs, a crash brings back what was released
		clear(s.all)
	}
	s.latest = [identities]*appointment{}
	return p.Close()
}

func (s *secretary) begin(c *client) (*planner, error) {
	ch, err := c.conn.Channel()
	if err != nil {
		return nil, err
	}
	p := &planner{s, ch, c.ledger, c.random, ch.NotifyReturn(make(chan amqp091.Return, 1))}
	none := make(chan amqp091.Return)
	close(none)
	closed := ch.NotifyClose(make(chan *amqp091.Error, 1))
	c.listening.Go(func() { c.watch(none, closed) })
	if err := p.Confirm(false); err != nil {
		return nil, err
	}
	s.wake(c.ledger)
	if _, err := p.QueueDeclare(s.name, true, false, false, false, nil); err != nil {
		return nil, err
	}
	return p, p.declare()
}

// wake looks back on the lives since it was last at work.
func (s *secretary) wake(l *ledger) {
	l.mu.Lock()
	life := l.life
	l.mu.Unlock()
	if s.life == life {
		return
	}
	s.life = life
	for _, a := range s.all {
		a.note("life %d", life)
		a.doubled = a.doubled || !s.exact && l.clock().Add(l.slack()).After(a.due)
	}
}

// declare declares the exchange and its binding. If it has to be there, it is as it was.
func (p *planner) declare() error {
	if p.exists == yes {
		if err := p.ExchangeDeclarePassive(p.name, "x-delayed-message", true, false, false, false, nil); err != nil {
			return err // its client complains
		}
		return nil
	}
	return attempt(&p.exists, yes, func() error {
		if err := declareDelayed(p.Channel, p.name); err != nil {
			return err
		}
		return p.QueueBind(p.name, p.name, p.name, false, nil)
	})
}

func (p *planner) act() error {
	switch n := p.random.IntN(100); {
	case n < 45:
		return p.schedule(p.random.IntN(identities), anyDelay(p.random))
	case n < 60:
		return p.cancel(p.random.IntN(identities))
	case n < 90:
		_, err := p.take()
		return err
	case n < 92:
		return p.discard()
	}
	time.Sleep(time.Duration(p.random.IntN(8)) * time.Millisecond)
	return nil
}

// publish publishes a message and waits for its confirm, which also settles what was read before, unless it was returned. It reports
// whether it was.
func (p *planner) publish(m amqp091.Publishing) (returned bool, err error) {
	if err := p.Flow(true); err != nil {
		return false, err
	}
	m.DeliveryMode = amqp091.Persistent
	sent, err := p.PublishWithDeferredConfirm(p.name, p.name, true, false, m)
	if err != nil {
		return false, err
	}
	if ok, err := sent.WaitContext(context.Background()); !ok || err != nil {
		return false, errGone
	}
	if returned = len(p.returns) > 0; returned {
		<-p.returns
	}
	p.confirmed(returned)
	return returned, nil
}

// confirmed notes that what was read before is settled for good. That a message was returned is in no log, so its confirm says nothing.
func (s *secretary) confirmed(returned bool) {
	for _, a := range s.all {
		if s.exact && !returned && a.seen == maybe && a.life == s.life {
			a.seen = yes
		}
	}
}

func identity(n int) string { return "identity " + strconv.Itoa(n) }

// schedule schedules a message, which replaces the one with its identity.
func (p *planner) schedule(id int, delay time.Duration) error {
	p.last++
	old := p.latest[id]
	a := &appointment{number: p.last, identity: id, due: p.ledger.clock().Add(delay), came: maybe}
	a.note("sent in life %d, to be held for %v", p.life, delay)
	p.all[a.number], p.latest[id] = a, a
	if old != nil && old.cancelled == no {
		old.cancelled = maybe
	}
	returned, err := p.publish(amqp091.Publishing{
		MessageId: strconv.Itoa(a.number), Headers: amqp091.Table{"x-delay": delay.Milliseconds(), "x-schedule-id": identity(id)},
	})
	if err != nil {
		return err
	}
	a.came = yes
	a.note("confirmed")
	p.count(func(c *counts) { c.scheduled++ })
	if returned {
		p.ledger.complain("%s: returned, though its queue is bound: %v", p.name, a)
	}
	p.replaced(old)
	return nil
}

// replaced says that one was replaced: if its time had not come by now, it never will.
func (p *planner) replaced(old *appointment) {
	if old == nil || old.cancelled != maybe || !p.ledger.clock().Add(p.ledger.slack()).Before(old.due) {
		return
	}
	old.cancelled = yes
	old.note("replaced")
	p.count(func(c *counts) { c.replaced++ })
}

// cancel cancels a message. If it is returned, it came too late, or there was none.
func (p *planner) cancel(id int) error {
	a := p.latest[id]
	before := no
	if a != nil {
		before, a.cancelled = a.cancelled, max(a.cancelled, maybe)
	}
	asked := p.ledger.clock()
	returned, err := p.publish(amqp091.Publishing{Headers: amqp091.Table{"x-schedule-cancel": true, "x-schedule-id": identity(id)}})
	if err != nil {
		return err
	}
	switch {
	case a == nil:
		if !returned {
			p.ledger.complain("%s: cancelled %s, which nobody has scheduled", p.name, identity(id))
		}
	case !returned:
		p.cancelled(a, before)
	default:
		a.note("cancelled in vain")
		p.count(func(c *counts) { c.tooLate++ })
		if a.came == yes && before == no && asked.Add(p.ledger.slack()).Before(a.due) && p.ledger.clock().Add(p.ledger.slack()).Before(a.due) {
			p.ledger.complain("%s: there was nothing to cancel: %v", p.name, a)
		}
		a.cancelled = before
	}
	return nil
}

func (p *planner) cancelled(a *appointment, before fact) {
	gone := a.seen == yes || a.seen == maybe && a.life == p.life // else its release may have been forgotten
	if gone && !a.doubled || before == yes {
		p.ledger.complain("%s: cancelled what had left: %v", p.name, a)
	}
	a.cancelled = yes
	a.note("cancelled in life %d", p.life)
	p.count(func(c *counts) { c.cancelled++ })
}

// discard deletes the exchange and what it holds, and declares it again.
func (p *planner) discard() error {
	for _, a := range p.all {
		if a.cancelled == no && a.seen == no {
			a.cancelled = maybe
		}
	}
	if err := attempt(&p.exists, no, func() error { return p.ExchangeDelete(p.name, false, false) }); err != nil {
		return err
	}
	p.latest = [identities]*appointment{}
	p.count(func(c *counts) { c.discarded++ })
	deleted := p.ledger.clock().Add(p.ledger.slack())
	for _, a := range p.all {
		if a.cancelled == maybe && deleted.Before(a.due) {
			a.cancelled = yes
			a.note("its exchange is deleted")
		}
	}
	return p.declare()
}

// take takes a message from the queue, if there is one. It acknowledges it only then: an answer that settles its message by itself may be
// lost with the broker, and the message with it.
func (p *planner) take() (some bool, err error) {
	got, ok, err := p.Get(p.name, false)
	if err != nil || !ok {
		return false, err
	}
	n, _ := strconv.Atoi(got.MessageId)
	a := p.all[n]
	if a == nil {
		p.ledger.complain("%s: %q came, of %d", p.name, got.MessageId, p.last)
		return true, got.Ack(false)
	}
	if wrong := p.wrong(a); wrong != "" {
		p.ledger.complain("%s: %s: %v", p.name, wrong, a)
	}
	a.note("seen in life %d", p.life)
	a.seen, a.life = maybe, p.life
	return true, got.Ack(false)
}

// wrong says why an appointment must not come now; "" = it may.
func (p *planner) wrong(a *appointment) string {
	switch {
	case p.ledger.clock().Add(p.ledger.slack()).Before(a.due):
		return "early"
	case a.doubled:
		return ""
	case a.cancelled == yes:
		return "came though it was cancelled"
	case a.seen == yes, a.seen == maybe && a.life == p.life:
		return "came twice"
	}
	return ""
}

// await takes what there is, until all has come that must have by now.
func (p *planner) await() error {
	var missing *appointment
	var err error
	complete := process.Poll(func() bool {
		some := true
		for some && err == nil {
			some, err = p.take()
		}
		missing = p.missing()
		return err != nil || missing == nil
	})
	if !complete {
		p.ledger.complain("%s: lost: %v", p.name, missing)
	}
	p.forget()
	return err
}

// missing returns one that has to be there.
func (p *planner) missing() *appointment {
	for _, a := range p.all {
		if a.came == yes && a.cancelled == no && a.seen == no && p.ledger.clock().After(a.due) {
			return a
		}
	}
	return nil
}

// forget removes what is over for certain. What may come back stays.
func (p *planner) forget() {
	for n, a := range p.all {
		if p.latest[a.identity] != a && len(p.all) > 5000 && a.seen == yes {
			delete(p.all, n)
		}
	}
}

func (p *planner) count(add func(*counts)) {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	add(&p.ledger.counts)
}
