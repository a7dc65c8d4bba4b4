package vhost

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// The topology stays consistent under concurrent clients and queues.
func TestConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		exchangeOf(t, v, "fan", "fanout")
		var all sync.WaitGroup
		for worker := range 8 {
			all.Go(func() {
				c := client{v: v, owner: Owner(worker + 1), r: rand.New(rand.NewPCG(1, uint64(worker)))}
				for range 300 {
					if err := c.step(); err != nil {
						t.Error(err)
					}
				}
				v.RemoveConnection(c.owner)
			})
		}
		all.Wait()
		synctest.Wait()
		v.consistent(t)
		for _, s := range v.Queues() {
			_, err := v.DeleteQueue(s.Config().Name, 0, false, false)
			must(t, err)
		}
		v.consistent(t)
		for _, b := range v.Bindings() {
			if !b.ToExchange {
				t.Errorf("%+v leads to nothing", b)
			}
		}
		if n := len(v.topology.queues.exclusive); n != 0 {
			t.Errorf("%d connections own queues that do not exist", n)
		}
	})
}

// client makes random requests.
type client struct {
	v      *VHost
	owner  Owner
	r      *rand.Rand
	queues []*queue.Mailbox
}

func (c *client) step() error {
	name := "q" + strconv.Itoa(c.r.IntN(6))
	inner := "x" + strconv.Itoa(c.r.IntN(3))
	var err error
	switch c.r.IntN(11) {
	case 0, 1:
		_, err = c.v.DeclareQueue(QueueDeclare{Name: name, Durable: true, Owner: c.owner, Args: args("x-dead-letter-exchange", "fan")})
	case 2:
		_, err = c.v.DeclareQueue(QueueDeclare{Exclusive: true, Owner: c.owner})
	case 3:
		_, err = c.v.DeleteQueue(name, c.owner, false, false)
	case 4:
		err = c.v.DeclareExchange(Exchange{Name: inner, Type: "topic", AutoDelete: true}, nil)
	case 5:
		err = c.v.DeleteExchange(inner, false)
	case 6:
		err = c.v.Bind(Binding{Source: inner, Destination: name, Key: "#"}, c.owner)
	case 7:
		err = c.v.Bind(Binding{Source: "fan", Destination: inner, ToExchange: true}, c.owner)
	case 8:
		err = c.v.Unbind(Binding{Source: inner, Destination: name, Key: "#"}, c.owner)
	case 9:
		err = c.publish()
	case 10:
		err = c.deadLetter(name)
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Kind == NotFound {
		return nil
	}
	return err
}

func (c *client) publish() (err error) {
	before := c.v.Generation()
	c.queues, _, err = c.v.Route("fan", &parts.Message{Key: "key"}, c.queues[:0])
	for _, s := range c.queues {
		publish(s, text("m"))
	}
	if c.v.Generation() < before {
		return errors.New("the generation went back")
	}
	return err
}

func (c *client) deadLetter(name string) error {
	s, err := c.v.Queue(name, c.owner)
	if err != nil {
		return err
	}
	var items []queue.PendingAck
	err = s.Do(func(q *queue.Queue, now hook.Instant) {
		consumer := &queue.Consumer{Queue: s}
		q.Get(now, consumer, func(d queue.Delivery, _ int) {
			items = append(items, queue.PendingAck{Ref: d.Ref, Consumer: consumer})
		})
	})
	s.Settle(queue.Reject, items)
	if errors.Is(err, queue.ErrGone) {
		return nil
	}
	return err
}

// consistent checks that bindings agree with the sources at their destinations.
func (v *VHost) consistent(t *testing.T) {
	t.Helper()
	v.topology.mu.RLock()
	defer v.topology.mu.RUnlock()
	noted := map[destination]map[*exchange]bool{}
	note := func(d destination, sources []*exchange) {
		noted[d] = map[*exchange]bool{}
		for _, x := range sources {
			noted[d][x] = true
		}
	}
	for name, e := range v.topology.queues.byName {
		if e.mailbox.Config().Name != name {
			t.Errorf("queue %s is in the table as %s", e.mailbox.Config().Name, name)
		}
		if e.extras != nil {
			note(destination{queue: e.mailbox}, e.extras.sources)
		}
	}
	for _, x := range v.topology.exchanges {
		note(destination{exchange: x}, x.sources)
	}
	for _, x := range v.topology.exchanges {
		if x.table == nil {
			continue
		}
		for b := range x.table.All() {
			if !noted[b.Destination][x] {
				t.Errorf("a binding from %s to %s is not noted there", x.Name, b.Destination.name())
			}
		}
	}
	for d, sources := range noted {
		for x := range sources {
			if v.topology.exchanges[x.Name] != x || !x.hasBindingTo(d) {
				t.Errorf("%s notes a binding from %s", d.name(), x.Name)
			}
		}
	}
}
