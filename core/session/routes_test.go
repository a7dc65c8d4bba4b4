package session

import (
	"fmt"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
)

// fillRoutes publishes with as many keys as the cache takes, all to queue q by a fanout exchange.
func fillRoutes(p *probe) {
	p.t.Helper()
	p.queue(1, "q")
	do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "q", Exchange: "amq.fanout"})
	for i := range maxRoutes {
		p.publish(1, published{exchange: "amq.fanout", key: fmt.Sprint("first ", i)})
	}
	if got := len(p.conn.routes.entries); got != maxRoutes {
		p.t.Fatalf("%d routes in the cache, want %d", got, maxRoutes)
	}
}

// Keys that are used once leave the full cache as it is, and their messages arrive. A key that is used again is taken.
func TestFullCacheTakesKeysThatAreUsedAgain(t *testing.T) {
	p := newProbe(t).open().channel(1)
	fillRoutes(p)
	const once = 3 * maxRoutes
	for i := range once {
		p.publish(1, published{exchange: "amq.fanout", key: fmt.Sprint("once ", i)})
	}
	p.holds(1, "q", maxRoutes+once)
	stay := 0
	for k := range p.conn.routes.entries {
		if k.key[:5] == "first" {
			stay++
		}
	}
	if stay < maxRoutes-2 || len(p.conn.routes.entries) != maxRoutes { // two hashes may be the same
		t.Errorf("%d of %d routes are left of those before %d keys that were used once", stay, maxRoutes, once)
	}
	for range 3 {
		p.publish(1, published{exchange: "amq.fanout", key: "again"})
	}
	p.holds(1, "q", maxRoutes+once+3)
	if p.conn.routes.entries[routeKey{"amq.fanout", "again"}] == nil || len(p.conn.routes.entries) != maxRoutes {
		t.Errorf("a key that was used three times is not among the %d routes", len(p.conn.routes.entries))
	}
}

// A route that is not in the cache follows each change of bindings, and so does its exchange each change of permissions.
func TestRoutesOutsideTheCacheAreUpToDate(t *testing.T) {
	p := newProbe(t, ownUsers(t)).open().channel(1)
	fillRoutes(p)
	n := 0
	single := func() {
		n++
		p.publish(1, published{exchange: "amq.fanout", key: fmt.Sprint("once ", n)})
	}
	single()
	p.queue(1, "later")
	do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "later", Exchange: "amq.fanout"})
	single()
	p.holds(1, "later", 1)
	do[*amqp.QueueUnbindOK](p, 1, &amqp.QueueUnbind{Queue: "later", Exchange: "amq.fanout"})
	single()
	p.holds(1, "later", 1)
	p.grant(auth.Permissions{Configure: ".*", Read: ".*", Write: "other"})
	single()
	if m := expect[*amqp.ChannelClose](p, 1); m.ReplyCode != amqp.ReplyAccessRefused {
		t.Errorf("without permission: %d %s", m.ReplyCode, m.ReplyText)
	}
}

// A message with a key of its own costs its routing info and the key, and nothing else.
func TestKeysUsedOnceAllocateLittle(t *testing.T) {
	if lossyPools {
		t.Skip("pools that lose things make new ones")
	}
	r, next := newManyKeys(t)
	per := testing.AllocsPerRun(50, next) / many
	if per > 2.1 {
		t.Errorf("%v allocations for each message", per)
	}
	if got := len(r.conn.routes.entries); got > maxRoutes {
		t.Errorf("%d routes", got)
	}
}

// newManyKeys returns a function that publishes many messages of ever other keys, 100,000 in turn, to a queue that is purged.
func newManyKeys(tb testing.TB) (r *rig, next func()) {
	tb.Helper()
	r = newRig(tb)
	do[*amqp.QueueBindOK](r.probe, 1, &amqp.QueueBind{Queue: "q", Exchange: "amq.fanout"})
	var batches [][]byte
	for i := 0; i < 100_000; i += many {
		var b []byte
		for k := range many {
			m := hundredBytes()
			m.exchange, m.key = "amq.fanout", fmt.Sprint("customer.", i+k)
			b = append(b, m.frames(1)...)
		}
		batches = append(batches, b)
	}
	purge := amqp.AppendMethod(nil, 1, &amqp.QueuePurge{Queue: "q", NoWait: true})
	i := 0
	next = func() {
		r.feed(batches[i%len(batches)])
		if i++; i%20 == 0 {
			r.feed(purge)
		}
	}
	for range len(batches) {
		next()
	}
	return r, next
}

func BenchmarkPublishManyKeys(b *testing.B) {
	_, next := newManyKeys(b)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += many {
		next()
	}
}
