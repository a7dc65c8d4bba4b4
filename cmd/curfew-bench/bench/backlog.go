package bench

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// rest is how long a broker is left idle before its memory is read.
const rest = 2 * time.Second

func backlogFlags(f flags) {
	f.whole(&f.o.publishers, "publishers", 1, 1, 10_000, "`connections` that publish")
	f.whole(&f.o.consumers, "consumers", 1, 0, 10_000, "`connections` that drain the queue afterwards; 0 = none")
	f.sized(100, 0)
	f.batched(64) // publishing is not measured
	f.counted(1_000_000, 1, "`messages` to publish")
	f.confirming(0, 0)
	f.acking()
	f.expiring("")
	f.waiting("where messages `wait`: queue (for the consumers), exchange (x-delayed-message) or hold (in the queue, x-deliver-after)", byQueue, byExchange, byHold)
	f.managed("")
	f.o.queues = 1
}

// backlog publishes, waits for the broker to rest, consumes everything, and waits again.
type backlog struct {
	*load

	filledAt, drainBegan  int64 // instants
	full, drainUsed, done usage
	depth                 int64
	lists                 *lists // of the held messages; nil = not measured
}

func startBacklog(l *load) measurement { return &backlog{load: l} }

func (b *backlog) run(ctx context.Context) error {
	if b.o.held() {
		return b.hold(ctx)
	}
	queues, err := b.several()
	if err != nil {
		return err
	}
	if err := b.fill(ctx, queues[0]); err != nil || b.o.consumers == 0 {
		return err
	}
	return b.drain(ctx, queues[0])
}

func (b *backlog) fill(ctx context.Context, queue string) error {
	if err := b.publishTo(queue); err != nil {
		return err
	}
	if err := b.measured(func() (err error) {
		b.depth, b.filledAt, err = b.f.filled(queue, b.o.messages, patience)
		if err == nil && b.depth < b.o.messages {
			return fmt.Errorf("the queue holds %d of %d messages and no more came for %v", b.depth, b.o.messages, patience)
		}
		return err
	}); err != nil {
		return err
	}
	return b.sampleAfter(ctx, rest, &b.full)
}

func (b *backlog) drain(ctx context.Context, queue string) error {
	b.drainBegan = b.clock.now()
	if err := b.consume(queue); err != nil {
		return err
	}
	if err := b.f.drained(b.depth, patience); err != nil {
		return err
	}
	b.sample(&b.drainUsed)
	return b.sampleAfter(ctx, rest, &b.done)
}

func (b *backlog) report(r *report) {
	got, last := b.f.got()
	r.add("published", "published", b.f.sent(), "messages")
	r.add("publish_rate", "publish rate, until all are queued", rate(b.depth, b.began, b.filledAt), "per s")
	if got > 0 {
		r.add("drained", "drained", got, "messages")
		r.add("drain_rate", "drain rate", rate(got, b.drainBegan, last), "per s")
	}
	b.f.confirmed(r)
	if b.o.pid > 0 {
		r.add("rss_per_message_bytes", "broker RSS per queued message", float64(b.full.rss-b.from.rss)/float64(b.depth), "B")
		if got > 0 {
			r.add("drain_broker_cpu_seconds_per_million", "broker CPU per million drained",
				(b.drainUsed.cpu-b.full.cpu).Seconds()/float64(got)*1e6, "s")
			r.add("broker_rss_drained_bytes", "broker RSS when drained", b.done.rss, "B")
		}
	}
	if b.lists != nil {
		b.lists.report(r)
	}
	b.to.rss = b.full.rss
	r.cost(b.session, b.f.sent(), b.from, b.to)
}

// hold publishes messages that stay held, by default for an hour or more. Held messages do not count as queued, so confirms show
// when the broker has all of them.
func (b *backlog) hold(ctx context.Context) error {
	b.o.confirm = cmp.Or(b.o.confirm, 4096)
	if !b.o.expiration.set {
		b.o.expiration = span{lo: time.Hour.Milliseconds(), hi: 2 * time.Hour.Milliseconds(), set: true}
	}
	to, queue, err := b.places()
	if err != nil {
		return err
	}
	for i := range b.o.publishers {
		if _, err := b.publisher(i, to); err != nil {
			return err
		}
	}
	if err := b.measured(func() error {
		b.depth, b.filledAt = b.f.sent(), b.f.ended()
		return nil
	}); err != nil {
		return err
	}
	if err := b.sampleAfter(ctx, rest, &b.full); err != nil {
		return err
	}
	b.lists = b.newLists(to, queue)
	return b.lists.measure(ctx)
}
