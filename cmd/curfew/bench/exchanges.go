package bench

import (
	"context"
	"strconv"
)

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

func directFlags(f flags) { exchangeFlags(f, 300) }

func topicFlags(f flags) {
	exchangeFlags(f, 300)
	f.whole(&f.o.matching, "matching", 3, 1, 100_000, "`bindings` that take a message, of those of all --queues")
}

// Bindings are what the queues of an exchange are bound with.
type bindings struct {
	patterns []string // of each queue
	keys     []string // to publish with, in turn
	copies   int64    // queues that get a message
}

func runFanout(ctx context.Context, s *session) (*report, error) {
	return runExchange(ctx, s, "fanout", bindings{patterns: make([]string, s.o.queues), keys: []string{""}, copies: s.o.queues})
}

func runDirect(ctx context.Context, s *session) (*report, error) {
	b := bindings{copies: 1}
	for i := range s.o.queues {
		b.keys = append(b.keys, "order."+strconv.FormatInt(i, 10))
	}
	b.patterns = b.keys
	return runExchange(ctx, s, "direct", b)
}

func runTopic(ctx context.Context, s *session) (*report, error) {
	return runExchange(ctx, s, "topic", topics(s.o.queues, s.o.matching))
}

// Topics gives n queues patterns such that matching of them take each key. Those that are left over match nothing.
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

func runExchange(ctx context.Context, s *session, kind string, b bindings) (*report, error) {
	exchange, err := s.exchange(kind)
	if err != nil {
		return nil, err
	}
	queues, err := s.several()
	if err != nil {
		return nil, err
	}
	for i, q := range queues {
		if err := s.admin.bind(q, exchange, b.patterns[i]); err != nil {
			return nil, err
		}
	}
	l := load{s: s, f: s.newFleet(ctx), copies: b.copies}
	c := s.content(b.keys, 0)
	c.exchange = exchange
	err = l.route(queues, c)
	if e := l.f.stop(); err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	return l.report(), nil
}

func (l *load) route(queues []string, c content) error {
	o := l.s.o
	for i := range min(o.consumers, o.queues) {
		var own []string
		for q := i; q < o.queues; q += o.consumers {
			own = append(own, queues[q])
		}
		if err := l.f.consume(own...); err != nil {
			return err
		}
	}
	for i := range o.publishers {
		p, err := l.f.publisher(c, o.confirm)
		if err != nil {
			return err
		}
		if err := l.share(p, i); err != nil {
			return err
		}
	}
	if o.consumers > 0 {
		return l.measured()
	}
	return l.queued(queues[0])
}

// Queued is measured without consumers: what was published has to be in the queues.
func (l *load) queued(queue string) (err error) {
	if l.from, err = l.s.usage(); err != nil {
		return err
	}
	if err := l.publish(); err != nil {
		return err
	}
	each := l.f.sent() * l.copies / l.s.o.queues
	if _, _, err := l.f.filled(queue, each, calm); err != nil { // with a length limit it never holds as many
		return err
	}
	l.to, err = l.s.usage()
	return err
}
