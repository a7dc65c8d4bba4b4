package bench

import (
	"context"
	"strconv"
)

func loadFlags(f flags) {
	o := f.o
	f.whole(&o.publishers, "publishers", 1, 0, 10_000, "`connections` that publish; 0 = none, others do")
	f.whole(&o.consumers, "consumers", 1, 0, 10_000, "`connections` that consume")
	f.whole(&o.queues, "queues", 1, 1, 1_000_000, "`queues`; publishers and consumers are spread over them")
	f.sized(16, 0)
	f.batched(1)
	f.paced()
	f.lasting()
	f.confirming(0, 0)
	f.StringVar(&o.fdatasync, "fdatasync", "", "also measure, between messages, what a write and an fdatasync take in `folder`; needs --confirm 1")
	f.acking()
	f.expiring("")
}

func runLoad(ctx context.Context, s *session) (*report, error) {
	queues, err := s.several()
	if err != nil {
		return nil, err
	}
	f := s.newFleet(ctx)
	l := load{s: s, f: f}
	err = l.run(queues)
	if e := f.stop(); err == nil {
		err = e
	}
	for _, d := range l.disks {
		if e := d.close(); err == nil {
			err = e
		}
	}
	if err != nil {
		return nil, err
	}
	return l.report(), nil
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

// Load is the plain scenario.
type load struct {
	s        *session
	f        *fleet
	disks    []*disk // of the publishers, with --fdatasync
	copies   int64   // deliveries of a message, where that is what counts; 0 = one
	from, to usage
	began    int64 // instant at which publishing began
}

func (l *load) run(queues []string) error {
	for i := range l.s.o.consumers {
		if err := l.f.consume(queues[i%l.s.o.queues]); err != nil {
			return err
		}
	}
	for i := range l.s.o.publishers {
		if err := l.publisher(i, queues); err != nil {
			return err
		}
	}
	return l.measured()
}

// Measured publishes and waits for what was published, between two looks at the broker's process.
func (l *load) measured() (err error) {
	if l.from, err = l.s.usage(); err != nil {
		return err
	}
	if err := l.publish(); err != nil {
		return err
	}
	l.to, err = l.s.usage()
	return err
}

// Publisher i of P serves queues i, i+P, i+2P and so on; with fewer queues than publishers several serve one.
func (l *load) publisher(i int64, queues []string) error {
	o := l.s.o
	var keys []string
	for q := i % o.queues; q < o.queues; q += o.publishers {
		keys = append(keys, queues[q])
	}
	p, err := l.f.publisher(l.s.content(keys, 0), o.confirm)
	if err != nil {
		return err
	}
	return l.share(p, i)
}

// Share gives publisher i its part of what all have to do.
func (l *load) share(p *publisher, i int64) (err error) {
	o := l.s.o
	if o.fdatasync != "" {
		if p.disk, err = openDisk(o.fdatasync, l.s.clock); err != nil {
			return err
		}
		l.disks = append(l.disks, p.disk)
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

func (l *load) publish() error {
	l.began = l.s.clock.now()
	for _, p := range l.f.publishers {
		if l.s.o.messages > 0 && p.limit == 0 {
			continue // fewer messages than publishers
		}
		if l.s.o.duration > 0 {
			p.until = l.began + int64(l.s.o.duration)
		}
		l.f.publish(p)
	}
	if err := l.f.published(); err != nil || len(l.f.consumers) == 0 {
		return err
	}
	if len(l.f.publishers) == 0 {
		return l.consumeOnly()
	}
	return l.f.drained(l.f.sent()*max(1, l.copies), patience)
}

// ConsumeOnly waits for messages that others publish.
func (l *load) consumeOnly() error {
	end := l.began + int64(l.s.o.duration)
	return l.f.until(func() (bool, error) {
		got, _ := l.f.got()
		over := l.s.o.duration > 0 && l.s.clock.now() >= end
		return over || (l.s.o.messages > 0 && got >= l.s.o.messages), nil
	})
}

func (l *load) report() *report {
	r := &report{}
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
	l.compared(r)
	l.f.delayed(r)
	n := sent
	if n == 0 || l.copies > 0 {
		n = got
	}
	if len(l.f.consumers) == 0 {
		n = sent * max(1, l.copies)
	}
	r.cost(l.s, n, l.from, l.to)
	return r
}

// Confirmed adds what the publishers learnt from confirms.
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

// Delayed adds by how much the generator itself was behind its schedule, so that its share in a latency can be told.
func (f *fleet) delayed(r *report) {
	var all histogram
	for _, p := range f.publishers {
		p.delayed.collect(&all)
	}
	r.quantiles("schedule_delay", "sent later than intended", &all)
}
