package bench

import (
	"context"
	"math"
	"slices"
	"strconv"

	"github.com/curfewmq/curfew/core/amqp"
)

const manyKeys = 1_000_000

func exchangeFlags(f flags, queues int64) {
	o := f.o
	f.whole(&o.publishers, "publishers", 1, 1, 10_000, "`connections` that publish")
	f.whole(&o.consumers, "consumers", queues, 0, 10_000, "`connections` that consume; the queues are spread over them. 0 = messages stay in the queues")
	f.whole(&o.queues, "queues", queues, 1, 100_000, "`queues` that are bound to the exchange, each by one binding")
	f.sized(100, 0)
	f.batched(1)
	f.paced()
	f.lasting()
	f.confirming(0, 0)
	f.acking()
}

func fanoutFlags(f flags) { exchangeFlags(f, 100) }

func directFlags(f flags) {
	exchangeFlags(f, 300)
	f.whole(&f.o.keys, "keys", 0, 0, manyKeys, "routing `keys`, each bound to one of the queues; at least one for each queue")
}

func hashFlags(f flags) {
	exchangeFlags(f, 100)
	f.StringVar(&f.o.exchangeType, "type", "x-consistent-hash", "exchange `type`, such as x-consistent-hash, x-modulus-hash or x-random")
	f.whole(&f.o.keys, "keys", 1000, 1, manyKeys, "routing `keys` that messages are published with, in turn")
	f.whole(&f.o.weight, "weight", 1, 1, math.MaxInt32, "binding key of each queue: its `weight`")
}

func topicFlags(f flags) {
	exchangeFlags(f, 300)
	f.whole(&f.o.matching, "matching", 3, 1, 100_000, "`bindings`, of those of all --queues, that match a message")
}

// bindings are the bindings of an exchange's queues, and the keys for publishing.
type bindings struct {
	patterns []string // one for each binding; binding i is of queue i modulo the number of queues
	keys     []string // routing keys, used in turn
	copies   int64    // how many queues get each message
}

// directs returns a binding for each key, and at least one for each of n queues.
func directs(n, keys int64) bindings {
	b := hashes("", n, max(n, keys))
	b.patterns = b.keys
	return b
}

// hashes returns bindings of n queues with the same pattern, and keys to publish with.
func hashes(pattern string, n, published int64) bindings {
	var keys []string
	for i := range published {
		keys = append(keys, "order."+strconv.FormatInt(i, 10))
	}
	return bindings{patterns: slices.Repeat([]string{pattern}, int(n)), keys: keys, copies: 1}
}

// topics returns patterns for n queues such that matching of them match each key. Any remaining queues get patterns that match nothing.
func topics(n, matching int64) bindings {
	b := bindings{copies: matching}
	groups := n / matching
	for g := range groups {
		b.keys = append(b.keys, "order."+strconv.FormatInt(g, 10)+".created")
	}
	for i := range n {
		group := strconv.FormatInt(i%groups, 10)
		switch round := i / groups; {
		case round >= matching:
			b.patterns = append(b.patterns, "order.*.cancelled")
		case round%3 == 0:
			b.patterns = append(b.patterns, "order."+group+".created")
		case round%3 == 1:
			b.patterns = append(b.patterns, "order."+group+".*")
		default:
			b.patterns = append(b.patterns, "*."+group+".#")
		}
	}
	return b
}

// routing publishes to an exchange with many queues.
type routing struct {
	*load

	kind string
	bindings
}

func startFanout(l *load) measurement {
	return &routing{l, "fanout", bindings{patterns: make([]string, l.o.queues), keys: []string{""}, copies: l.o.queues}}
}

func startDirect(l *load) measurement { return &routing{l, "direct", directs(l.o.queues, l.o.keys)} }

func startTopic(l *load) measurement {
	return &routing{l, "topic", topics(l.o.queues, l.o.matching)}
}

func startHash(l *load) measurement {
	return &routing{l, l.o.exchangeType, hashes(strconv.FormatInt(l.o.weight, 10), l.o.queues, l.o.keys)}
}

func (r *routing) run(context.Context) error {
	exchange, err := r.exchange(r.kind)
	if err != nil {
		return err
	}
	queues, err := r.several()
	if err != nil {
		return err
	}
	for i, pattern := range r.patterns {
		m := &amqp.QueueBind{Queue: queues[i%len(queues)], Exchange: exchange, RoutingKey: pattern}
		if _, err := request[*amqp.QueueBindOK](r.admin, m); err != nil {
			return err
		}
	}
	r.load.copies = r.bindings.copies
	if err := r.connect(exchange, queues); err != nil {
		return err
	}
	if r.o.consumers > 0 {
		return r.measured(r.consumed)
	}
	return r.measured(func() error { // everything published must be in the queues
		each := r.f.sent() * r.load.copies / r.o.queues
		_, _, err := r.f.filled(queues[0], each, calm) // with a length limit the queue never holds as many
		return err
	})
}

// connect adds consumers, each for several queues, and publishers to the exchange.
func (r *routing) connect(exchange string, queues []string) error {
	for i := range min(r.o.consumers, r.o.queues) {
		var own []string
		for q := i; q < r.o.queues; q += r.o.consumers {
			own = append(own, queues[q])
		}
		if err := r.f.consume(own...); err != nil {
			return err
		}
	}
	c := r.content(r.keys, 0)
	c.exchange = exchange
	for i := range r.o.publishers {
		if _, err := r.publisher(i, c); err != nil {
			return err
		}
	}
	return nil
}
