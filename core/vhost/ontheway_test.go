package vhost

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// routingHolder is a holder with an inner type that calls a function when it routes.
type routingHolder struct {
	holder
	everywhere
	routes func()
}

func (p *routingHolder) ExchangeTypes() []hook.ExchangeType {
	router := func(*hook.Exchange) hook.Router { return p }
	return append(p.holder.ExchangeTypes(), hook.ExchangeType{Name: "x-watched", Volatile: true, New: router})
}

func (p *routingHolder) Route(m *hook.Publishing, dst []hook.Destination) []hook.Destination {
	p.routes()
	return p.everywhere.Route(m, dst)
}

// A client that asks an exchange for its held messages, and then a queue for its messages, finds a message that moves from one to the
// other: the exchange counts it until the queue has got it, and the queue answers after that. In the other order it may be in neither
// answer, as with any two questions one after the other.
func TestAReleasedMessageIsCountedWhereverItIs(t *testing.T) {
	for _, name := range []string{"when it is due", "when it is moved"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &routingHolder{}
				v, _ := newHoldingVHost(t, p, nil)
				q := declare(t, v, "q")
				exchangeOf(t, v, "x", "x-held", "x-inner", "x-watched")
				bind(t, v, "x", "q", "")
				sent{exchange: "x", body: "a", props: headersOf("wait", int32(100))}.send(t, v)
				x, err := v.Schedule("x")
				must(t, err)
				counted := x.Config().Schedule.Held // waits for no turn, as the management API does not
				routed := 0
				must(t, x.Look(func(*queue.Queue) { // on a turn: the timer's is the next
					p.routes = func() {
						if routed++; counted() != 1 {
							t.Errorf("the exchange counts %d messages while it routes one", counted())
						}
					}
				}))
				busy, has := make(chan bool), make(chan int)
				go func() { _ = q.Do(func(*queue.Queue, hook.Instant) { <-busy }) }()
				synctest.Wait()
				if name == "when it is moved" {
					moveHeld(t, x)
				} else {
					time.Sleep(time.Second)
				}
				synctest.Wait()
				if routed != 1 || counted() != 0 {
					t.Errorf("it was routed %d times, and the exchange counts %d messages", routed, counted())
				}
				go func() {
					ready := -1
					_ = q.Look(func(q *queue.Queue) { ready = q.Stats().Ready })
					has <- ready
				}()
				synctest.Wait()
				close(busy)
				if n := <-has; n != 1 {
					t.Errorf("the exchange does not count the message any more, and the queue has %d", n)
				}
			})
		})
	}
}

// moveHeld has an operator release the first message that an exchange holds.
func moveHeld(t *testing.T, x *queue.Mailbox) {
	t.Helper()
	must(t, x.Do(func(q *queue.Queue, now hook.Instant) {
		var first queue.Ref
		q.HeldFrom(0, 0, func(h *queue.Held) bool { first = h.Ref; return false })
		if !q.MoveHeld(now, first, now) {
			t.Error("the message is not held")
		}
	}))
}
