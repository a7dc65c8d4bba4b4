package bench

import (
	"context"
	"fmt"
	"time"
)

// rest is how long a broker is given to come to rest before its memory is read.
const rest = 2 * time.Second

func backlogFlags(f flags) {
	f.whole(&f.o.publishers, "publishers", 1, 1, 10_000, "`connections` that publish")
	f.whole(&f.o.consumers, "consumers", 1, 0, 10_000, "`connections` that drain the queue afterwards; 0 = leave that out")
	f.sized(100, 0)
	f.batched(64) // what is measured comes after the publishing
	f.counted(1_000_000, 1, "`messages` to publish")
	f.confirming(0, 0)
	f.acking()
	f.o.queues = 1
}

// Backlog is the scenario of the same name: publish, rest, drain, rest.
type backlog struct {
	load
	queue                 string
	filledAt, drainBegan  int64
	full, drainUsed, done usage
	depth                 int64
}

func runBacklog(ctx context.Context, s *session) (*report, error) {
	queues, err := s.several()
	if err != nil {
		return nil, err
	}
	f := s.newFleet(ctx)
	b := backlog{load: load{s: s, f: f}, queue: queues[0]}
	if err = b.fill(ctx); err == nil {
		err = b.drain(ctx)
	}
	if e := f.stop(); err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	return b.report(), nil
}

func (b *backlog) fill(ctx context.Context) error {
	for i := range b.s.o.publishers {
		if err := b.publisher(i, []string{b.queue}); err != nil {
			return err
		}
	}
	var err error
	if b.from, err = b.s.usage(); err != nil {
		return err
	}
	if err = b.publish(); err != nil {
		return err
	}
	if b.depth, b.filledAt, err = b.f.filled(b.queue, b.s.o.messages, patience); err != nil {
		return err
	}
	if b.depth < b.s.o.messages {
		return fmt.Errorf("the queue holds %d of %d messages and no more came for %v", b.depth, b.s.o.messages, patience)
	}
	if b.to, err = b.s.usage(); err != nil {
		return err
	}
	if err := settle(ctx, rest); err != nil {
		return err
	}
	b.full, err = b.s.usage()
	return err
}

func (b *backlog) drain(ctx context.Context) error {
	if b.s.o.consumers == 0 {
		return nil
	}
	b.drainBegan = b.s.clock.now()
	for range b.s.o.consumers {
		if err := b.f.consume(b.queue); err != nil {
			return err
		}
	}
	if err := b.f.drained(b.depth, patience); err != nil {
		return err
	}
	var err error
	if b.drainUsed, err = b.s.usage(); err != nil {
		return err
	}
	if err := settle(ctx, rest); err != nil {
		return err
	}
	b.done, err = b.s.usage()
	return err
}

func (b *backlog) report() *report {
	r := &report{}
	got, last := b.f.got()
	r.add("published", "published", b.f.sent(), "messages")
	r.add("publish_rate", "publish rate, until all are queued", rate(b.depth, b.began, b.filledAt), "per s")
	if got > 0 {
		r.add("drained", "drained", got, "messages")
		r.add("drain_rate", "drain rate", rate(got, b.drainBegan, last), "per s")
	}
	b.f.confirmed(r)
	if b.s.o.pid > 0 {
		r.add("rss_per_message_bytes", "broker RSS per queued message", float64(b.full.rss-b.from.rss)/float64(b.depth), "B")
		if got > 0 {
			r.add("drain_broker_cpu_seconds_per_million", "broker CPU per million drained",
				(b.drainUsed.cpu-b.full.cpu).Seconds()/float64(got)*1e6, "s")
			r.add("broker_rss_drained_bytes", "broker RSS when drained", b.done.rss, "B")
		}
	}
	to := b.to
	to.rss = b.full.rss
	r.cost(b.s, b.f.sent(), b.from, to)
	return r
}
