package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	poll     = 10 * time.Millisecond // how often the main goroutine checks whether a run has ended
	patience = 10 * time.Second      // the longest time without progress at the end of a run
	stall    = 30 * time.Second      // the longest time without progress while publishing
)

// fleet has the publishers and consumers of a run. The main goroutine owns it. Each publisher and consumer has its own goroutines; the
// first one that fails ends the run.
type fleet struct {
	s      *session
	user   context.Context // ends when the user interrupts the run
	ctx    context.Context // ends with user, or when a goroutine has failed
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	publishers []*publisher
	consumers  []*consumer
	pacers     []pacer
	publishing atomic.Int32 // publishers that have not finished

	rejections *atomic.Int64 // that the consumers have yet to make, all together; nil = none

	progress progress
	latency  histogram // end to end, the whole run
}

func (s *session) newFleet(ctx context.Context) *fleet {
	f := &fleet{s: s, user: ctx}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.progress = progress{s: s, f: f}
	return f
}

// consume adds a consumer and starts it.
func (f *fleet) consume(queues ...string) error {
	c, err := f.s.open(f.ctx, f.s.o.broker)
	if err != nil {
		return err
	}
	k := f.consumer(c)
	if err := k.subscribe(f.s.o.prefetch, queues...); err != nil {
		return err
	}
	f.start(k.run)
	return nil
}

// consumer adds a consumer that is not subscribed or started.
func (f *fleet) consumer(c *conn) *consumer {
	k := &consumer{c: c, clock: f.s.clock, ackEvery: f.s.o.ackEvery, latency: &tally{}, rejections: f.rejections}
	f.consumers = append(f.consumers, k)
	return k
}

// publisher adds a publisher that is connected and listens, but does not publish yet.
func (f *fleet) publisher(c content, confirm int64) (*publisher, error) {
	conn, err := f.s.open(f.ctx, f.s.o.broker)
	if err != nil {
		return nil, err
	}
	return f.publisherOn(conn, c, confirm)
}

func (f *fleet) publisherOn(conn *conn, c content, confirm int64) (p *publisher, err error) {
	p = &publisher{c: conn, clock: f.s.clock}
	f.publishers = append(f.publishers, p)
	if confirm > 0 {
		p.gate = newGate(confirm, f.s.o.batch)
		if err := conn.confirms(); err != nil {
			return nil, err
		}
	}
	if p.pace, err = f.s.pace(); err != nil {
		return nil, err
	}
	f.pacers = append(f.pacers, p.pace)
	c.frameMax = conn.frameMax
	p.t = newTemplate(c)
	f.start(p.listen)
	return p, nil
}

func (f *fleet) start(fn func() error) {
	f.wg.Go(func() {
		if err := fn(); err != nil {
			f.cancel(err)
		}
	})
}

func (f *fleet) publish(p *publisher) {
	f.publishing.Add(1)
	f.start(func() error {
		defer f.publishing.Add(-1)
		return p.publish(f.ctx)
	})
}

func (f *fleet) sent() (n int64) {
	for _, p := range f.publishers {
		n += p.sent.Load()
	}
	return n
}

// got returns the number of consumed messages, and the instant of the last one.
func (f *fleet) got() (n, last int64) {
	for _, k := range f.consumers {
		n += k.got.Load()
		last = max(last, k.last.Load())
	}
	return n, last
}

// until calls done until it returns true, and prints progress in between. It returns nil if the user interrupts, and an error if a
// connection fails.
func (f *fleet) until(done func() (bool, error)) error {
	t := time.NewTicker(poll)
	defer t.Stop()
	for {
		over, err := done()
		if over || err != nil {
			return err
		}
		select {
		case <-t.C:
			err = f.progress.show()
		case <-f.ctx.Done():
			return f.failure()
		}
		if err != nil {
			return err
		}
	}
}

// failure returns the error that ended the run early; nil if the user ended it.
func (f *fleet) failure() error {
	if f.user.Err() != nil {
		return nil
	}
	return context.Cause(f.ctx)
}

// published waits until the publishers have finished. It fails if the broker accepts nothing for longer than stall.
func (f *fleet) published() error {
	sent, since := int64(0), f.s.clock.now()
	return f.until(func() (bool, error) {
		now := f.s.clock.now()
		if n := f.sent(); n != sent {
			sent, since = n, now
		}
		if now-since > int64(stall) {
			return false, f.stalled()
		}
		return f.publishing.Load() == 0, nil
	})
}

func (f *fleet) stalled() error {
	for _, p := range f.publishers {
		if reason := p.blocked.Load(); reason != nil {
			return fmt.Errorf("publish: the broker took nothing for %v: connection.blocked: %s", stall, *reason)
		}
	}
	return fmt.Errorf("publish: the broker took nothing, or confirmed nothing, for %v", stall)
}

// ended returns when the last publisher finished.
func (f *fleet) ended() (at int64) {
	for _, p := range f.publishers {
		at = max(at, p.ended.Load())
	}
	return at
}

// drained waits until n messages were consumed, or none was for longer than patience.
func (f *fleet) drained(n int64, patience time.Duration) error {
	since := f.s.clock.now()
	return f.until(func() (bool, error) {
		got, last := f.got()
		return got >= n || f.s.clock.now()-max(last, since) > int64(patience), nil
	})
}

// filled waits until a queue holds n messages, or has not grown for longer than patience. at is when it last grew.
func (f *fleet) filled(queue string, n int64, patience time.Duration) (depth, at int64, err error) {
	at = f.s.clock.now()
	err = f.until(func() (bool, error) {
		d, err := f.s.admin.depth(queue)
		now := f.s.clock.now()
		if d != depth {
			depth, at = d, now
		}
		return depth >= n || now-at > int64(patience), err
	})
	return depth, at, err
}

// stop ends all goroutines, closes the connections and collects the remaining latencies.
func (f *fleet) stop() error {
	past := time.Unix(1, 0)
	for _, p := range f.publishers {
		_ = p.c.nc.SetReadDeadline(past)
	}
	for _, k := range f.consumers {
		_ = k.c.nc.SetReadDeadline(past)
	}
	failure := f.failure()
	f.cancel(nil)
	f.wg.Wait()
	for _, p := range f.publishers {
		_ = p.c.close() // the measurement is over
	}
	_ = inParallel(len(f.consumers), func(i int) error {
		_ = f.consumers[i].c.close()
		return nil
	})
	f.sweep()
	for _, p := range f.pacers {
		_ = p.Close()
	}
	return failure
}

// sweep returns the latencies since its last call, and adds them to those of the whole run.
func (f *fleet) sweep() *histogram {
	h := &histogram{}
	for _, k := range f.consumers {
		k.latency.collect(h)
	}
	f.latency.merge(h)
	return h
}

// progress prints a line every second.
type progress struct {
	s         *session
	f         *fleet
	began, at int64
	sent, got int64
	used      usage
}

func (p *progress) show() error {
	now := p.s.clock.now()
	if p.began == 0 {
		p.began, p.at, p.used = now, now, p.s.start
		return nil
	}
	if now-p.at < int64(time.Second) {
		return nil
	}
	h := p.f.sweep()
	sent := p.f.sent()
	got, _ := p.f.got()
	took := float64(now-p.at) / 1e9
	line := fmt.Sprintf("%4ds  published %s (%s/s)  consumed %s (%s/s)", (now-p.began)/1e9,
		grouped(sent), grouped(int64(float64(sent-p.sent)/took)), grouped(got), grouped(int64(float64(got-p.got)/took)))
	if h.n > 0 {
		line += fmt.Sprintf("  latency p50 %.2f p99 %.2f ms", millis(h.quantile(0.5)), millis(h.quantile(0.99)))
	}
	used := p.used
	p.s.sample(&used)
	if p.s.o.pid > 0 {
		line += fmt.Sprintf("  broker CPU %.0f %% RSS %.1f MiB", (used.cpu-p.used.cpu).Seconds()/took*100, float64(used.rss)/(1<<20))
	}
	fmt.Fprintln(p.s.stderr, line)
	p.at, p.sent, p.got, p.used = now, sent, got, used
	return p.s.failed
}
