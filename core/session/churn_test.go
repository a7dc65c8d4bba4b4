package session

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
)

// reachable counts the queues that are still in memory.
func reachable(queues []weak.Pointer[queue.Mailbox]) (n int) {
	for range 3 { // objects in a pool survive two collections
		runtime.GC()
	}
	for _, q := range queues {
		if q.Value() != nil {
			n++
		}
	}
	return n
}

// weakQueue returns a weak pointer to the queue of that name.
func (p *probe) weakQueue(name string) weak.Pointer[queue.Mailbox] {
	p.t.Helper()
	s := p.conn.vhost.Mailbox(name)
	if s == nil {
		p.t.Fatalf("no queue %q", name)
	}
	return weak.Make(s)
}

// Deleted queues leave nothing behind in connections. A connection used to keep the last 2,048 queues that it had published to as long as it
// lasted: 32 connections that used 60,000 queues kept 80 MB.
func TestChurnLeavesNothing(t *testing.T) {
	const churned, atOnce = 2000, 20
	for _, tt := range []struct {
		name  string
		props amqp.Properties
	}{
		{name: "by its name"},
		{name: "with further keys", props: withHeaders("CC", amqp.Array{"nowhere"})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProbe(t).open().channel(1).channel(2)
				p.queue(1, "stays")
				p.publish(1, published{key: "stays", body: "x"})
				var gone []weak.Pointer[queue.Mailbox]
				most := 0
				for i := 0; i < churned; i += atOnce {
					for k := i; k < i+atOnce; k++ {
						name := fmt.Sprint("q", k)
						p.queue(1, name)
						do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: name, Exchange: "amq.fanout"})
						gone = append(gone, p.weakQueue(name))
						p.publish(1, published{key: name, body: "x", props: tt.props}, published{exchange: "amq.fanout", body: "x"})
					}
					p.publish(1, published{key: "stays", body: "x"})
					for k := i; k < i+atOnce; k++ {
						name := fmt.Sprint("q", k)
						p.send(2, &amqp.BasicGet{Queue: name, NoAck: true}, &amqp.BasicConsume{Queue: name, ConsumerTag: name, NoAck: true})
						p.send(1, &amqp.QueueDelete{Queue: name})
						p.out = nil // deliveries, and basic.cancel
					}
					most = max(most, len(p.conn.routes.entries))
				}
				const some = 4 * pruneAfter
				if most > some {
					t.Errorf("the connection had %d routes, want %d at most", most, some)
				}
				if n := reachable(gone); n > some {
					t.Errorf("%d of %d deleted queues are in memory after the churn, want %d at most", n, churned, some)
				}
				p.holds(1, "stays", 1+churned/atOnce)
				time.Sleep(time.Hour) // the runtime keeps some stopped timers, each with its queue, until they would fire
				for range 3 {         // idle
					p.now = p.now.Add(pruneInterval)
					p.conn.Tick(p.now)
				}
				if n := reachable(gone); n > 0 {
					t.Errorf("%d of %d deleted queues are in memory after a while, with %d routes", n, churned, len(p.conn.routes.entries))
				}
				p.publish(1, published{key: "stays", body: "x"})
				p.holds(1, "stays", 2+churned/atOnce)
			})
		})
	}
}

// Pruning keeps the routes that are in use, whatever changes in the topology.
func TestRoutesInUseAreKept(t *testing.T) {
	p := newProbe(t).open().channel(1)
	const used = 3 * pruneAfter
	kept := map[routeKey]*cachedRoute{}
	for round := range 20 {
		for i := range used {
			name := fmt.Sprint("q", i)
			if round == 0 {
				p.queue(1, name)
			}
			p.publish(1, published{key: name, body: "x"})
			if k := (routeKey{"", name}); round == 0 {
				kept[k] = p.conn.routes.entries[k]
			} else if p.conn.routes.entries[k] != kept[k] || kept[k] == nil {
				t.Fatalf("round %d: the route to %s was forgotten", round, name)
			}
		}
		for i := range pruneAfter {
			p.publish(1, published{key: fmt.Sprint("nowhere", round, i)})
		}
		p.queue(1, fmt.Sprint("another", round))
		p.now = p.now.Add(pruneInterval)
		p.conn.Tick(p.now)
	}
}
