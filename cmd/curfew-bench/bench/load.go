package bench

import (
	"context"
	"strconv"
	"time"
)

func loadFlags(f flags) {
	o := f.o
	f.whole(&o.publishers, "publishers", 1, 0, 10_000, "`connections` that publish; 0 = none, other clients publish")
	f.whole(&o.consumers, "consumers", 1, 0, 10_000, "`connections` that consume")
	f.whole(&o.queues, "queues", 1, 1, 1_000_000, "`queues`; publishers and consumers are spread over them")
	f.sized(16, 0)
	f.batched(1)
	f.paced()
	f.lasting()
	f.confirming(0, 0)
	f.StringVar(&o.fdatasync, "fdatasync", "", "also measure, between messages, a write with fdatasync in `folder`; needs --confirm 1")
	f.acking()
	f.expiring("")
}

// load is the simplest scenario, and the base of the others: publishers, consumers, and
// samples of the broker's process before and after they work.
type load struct {
	*session

	f        *fleet
	disks    []*disk // of the publishers, with --fdatasync
	copies   int64   // deliveries of each message, in scenarios that count them; 0 = one
	from, to usage
	began    int64 // instant at which publishing began
}

func startLoad(l *load) measurement { return l }

func (l *load) run(context.Context) error {
	queues, err := l.several()
	if err != nil {
		return err
	}
	if err := l.consume(queues...); err != nil {
		return err
	}
	if err := l.publishTo(queues...); err != nil {
		return err
	}
	return l.measured(l.consumed)
}

func (s *session) several() ([]string, error) {
	var queues []string
	for i := range s.o.queues {
		q, err := s.queue(strconv.FormatInt(i, 10), s.ttl()...)
		if err != nil {
			return nil, err
		}
		queues = append(queues, q)
	}
	return queues, nil
}

// consume adds the consumers, spread over the queues, and starts them.
func (l *load) consume(queues ...string) error {
	for i := range l.o.consumers {
		if err := l.f.consume(queues[i%int64(len(queues))]); err != nil {
			return err
		}
	}
	return nil
}

// publishTo adds the publishers. Publisher i of P publishes to queues i, i+P, i+2P and so
// on; with fewer queues than publishers, a queue has several.
func (l *load) publishTo(queues ...string) error {
	n := int64(len(queues))
	for i := range l.o.publishers {
		var keys []string
		for q := i % n; q < n; q += l.o.publishers {
			keys = append(keys, queues[q])
		}
		if _, err := l.publisher(i, l.content(keys, 0)); err != nil {
			return err
		}
	}
	return nil
}

func (l *load) publisher(i int64, c content) (*publisher, error) {
	p, err := l.f.publisher(c, l.o.confirm)
	if err != nil {
		return nil, err
	}
	return p, l.assign(p, i)
}

// assign gives publisher i its share of the messages and of the rate.
func (l *load) assign(p *publisher, i int64) error {
	o := l.o
	if o.fdatasync != "" {
		d, err := openDisk(o.fdatasync, l.clock)
		if err != nil {
			return err
		}
		p.disk = d
		l.disks = append(l.disks, d)
		l.cleanUp(d.close)
	}
	p.rate = float64(o.rate) / float64(o.publishers)
	if o.messages > 0 {
		p.limit = o.messages / o.publishers
		if i < o.messages%o.publishers {
			p.limit++
		}
	}
	return nil
}

// measured publishes and waits, and samples the broker's process before and after that.
func (l *load) measured(wait func() error) error {
	l.sample(&l.from)
	if err := l.publish(); err != nil {
		return err
	}
	if err := wait(); err != nil {
		return err
	}
	l.sample(&l.to)
	return nil
}

// publish starts the publishers and waits until they have finished.
func (l *load) publish() error {
	l.began = l.clock.now()
	for _, p := range l.f.publishers {
		if l.o.messages > 0 && p.limit == 0 {
			continue // fewer messages than publishers
		}
		if l.o.duration > 0 {
			p.until = l.began + int64(l.o.duration)
		}
		l.f.publish(p)
	}
	return l.f.published()
}

// consumed waits until the consumers have received everything that was published.
func (l *load) consumed() error {
	switch {
	case len(l.f.consumers) == 0:
		return nil
	case len(l.f.publishers) > 0:
		return l.f.drained(l.f.sent()*max(1, l.copies), patience)
	}
	end := l.began + int64(l.o.duration)
	return l.f.until(func() (bool, error) { // other generators publish
		got, _ := l.f.got()
		over := l.o.duration > 0 && l.clock.now() >= end
		return over || (l.o.messages > 0 && got >= l.o.messages), nil
	})
}

// lifetime returns the longest time for which a message of this session can live.
func (s *session) lifetime() time.Duration {
	ms := max(0, s.o.ttl)
	if s.o.expiration.set && (s.o.ttl < 0 || s.o.expiration.hi < ms) {
		ms = s.o.expiration.hi
	}
	return time.Duration(ms) * time.Millisecond
}

func (l *load) report(r *report) {
	sent := l.f.sent()
	got, last := l.f.got()
	r.add("published", "published", sent, "messages")
	r.add("consumed", "consumed", got, "messages")
	if sent > 0 {
		r.add("publish_rate", "publish rate", rate(sent, l.began, l.f.ended()), "per s")
	}
	if got > 0 {
		r.add("consume_rate", "consume rate", rate(got, l.began, last), "per s")
	}
	r.quantiles("latency", "end-to-end latency", &l.f.latency)
	l.f.confirmed(r)
	l.compareDisks(r)
	l.f.delayed(r)
	n := sent
	if n == 0 || l.copies > 0 {
		n = got
	}
	if len(l.f.consumers) == 0 {
		n = sent * max(1, l.copies)
	}
	r.cost(l.session, n, l.from, l.to)
}

// confirmed adds the latencies of confirms, and the number of refused messages.
func (f *fleet) confirmed(r *report) {
	var all histogram
	var nacked uint64
	for _, p := range f.publishers {
		h, n := p.latency()
		all.merge(h)
		nacked += n
	}
	r.quantiles("confirm", "confirm latency", &all)
	if all.n > 0 {
		r.add("nacked", "refused by the broker", int64(nacked), "messages")
	}
}

// delayed adds how far the generator was behind its own schedule; this time is part of the latencies.
func (f *fleet) delayed(r *report) {
	var all histogram
	for _, p := range f.publishers {
		p.delayed.collect(&all)
	}
	r.quantiles("schedule_delay", "sent later than intended", &all)
}
