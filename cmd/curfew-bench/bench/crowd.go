package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	crowdBuffer = 4 << 10 // size of a member's read buffer, in addition to a body
	crowdAtOnce = 32      // connections that are opened, or closed, concurrently
)

func crowdFlags(f flags) {
	o := f.o
	f.whole(&o.connections, "connections", 2000, 2, 60_000, "`connections`, each with a consumer; the first half also publishes, to the queues of the others")
	f.whole(&o.queues, "queues", 0, 0, 60_000, "`queues` that the consumers share; 0 = one for each consumer")
	f.sized(100, stampSize)
	f.period(&o.idle, "idle", 5*time.Second, 0, time.Hour, "how much `time` to watch the idle broker")
	f.period(&o.every, "every", time.Second, time.Millisecond, time.Hour, "the `time` between two messages of a publisher")
	f.period(&o.duration, "duration", 10*time.Second, 0, 240*time.Hour, "publish for this `time`")
}

// crowd has one goroutine that publishes on all connections, and one for each consumer that reads.
type crowd struct {
	*load

	conns   []*conn
	queues  []string
	pacer   pacer
	sent    atomic.Int64
	done    atomic.Bool
	delayed tally

	full, idled           usage
	first, opened         int64 // instants: of the first connection, and of the last
	publishing, published int64 // instants: of the first message, and of the last; the publisher owns published until it has ended
}

func startCrowd(l *load) measurement { return &crowd{load: l} }

func (c *crowd) run(ctx context.Context) (err error) {
	if c.pacer, err = c.pace(); err != nil {
		return err
	}
	c.cleanUp(c.pacer.Close)
	if c.o.queues == 0 {
		c.o.queues = c.o.connections
	}
	c.sample(&c.from)
	if c.queues, err = c.several(); err != nil {
		return err
	}
	c.first = c.clock.now()
	if err := c.open(); err != nil {
		return err
	}
	c.opened = c.clock.now()
	if err := c.sampleAfter(ctx, rest, &c.full); err != nil {
		return err
	}
	if err := c.sampleAfter(ctx, c.o.idle, &c.idled); err != nil {
		return err
	}
	if err := c.talk(); err != nil {
		return err
	}
	c.sample(&c.to)
	return nil
}

// open opens all connections and subscribes on each.
func (c *crowd) open() error {
	n := int(c.o.connections)
	buffer := crowdBuffer + int(min(c.o.size, frameMax-crowdBuffer))
	c.conns = make([]*conn, n)
	err := inParallel(n, func(i int) (err error) {
		c.conns[i], err = c.openSmall(c.f.ctx, c.o.broker, buffer)
		return err
	})
	latency := &tally{}
	for i, conn := range c.conns {
		if conn == nil {
			continue // err has the reason
		}
		k := c.f.consumer(conn)
		k.latency = latency
		if err == nil {
			err = k.subscribe(0, c.queueOf(i))
		}
		if err == nil {
			c.f.start(k.run)
		}
	}
	return err
}

// queueOf returns the queue that connection i consumes from.
func (c *crowd) queueOf(i int) string { return c.queues[i%len(c.queues)] }

// inParallel calls do n times, several at once, and returns the first error.
func inParallel(n int, do func(i int) error) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make(chan error, crowdAtOnce)
	for range crowdAtOnce {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					errs <- fmt.Errorf("connection %d of %d: %w", i+1, n, err)
					next.Store(int64(n))
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// talk publishes on half of the connections.
func (c *crowd) talk() error {
	c.publishing = c.clock.now()
	c.f.start(func() error {
		err := c.publish(c.f.ctx)
		c.published = c.clock.now()
		c.done.Store(true)
		return err
	})
	if err := c.f.until(func() (bool, error) { return c.done.Load(), nil }); err != nil {
		return err
	}
	return c.f.drained(c.sent.Load(), patience)
}

func (c *crowd) publish(ctx context.Context) error {
	half := len(c.conns) / 2
	var keys []string
	for i := range half {
		keys = append(keys, c.queueOf(half+i))
	}
	t := newTemplate(c.content(keys, c.conns[0].frameMax))
	stop := context.AfterFunc(ctx, func() {
		for _, conn := range c.conns[:half] {
			_ = conn.nc.SetWriteDeadline(time.Unix(1, 0))
		}
	})
	defer stop()
	until := c.publishing + int64(c.o.duration)
	s := newSchedule(c.publishing, float64(half)/c.o.every.Seconds(), 1)
	for ctx.Err() == nil && c.clock.now() < until {
		if err := c.clock.nap(c.pacer, min(until, s.next())); err != nil {
			return err
		}
		n, at := s.take(min(until-1, c.clock.now()), 1)
		if n == 0 {
			continue
		}
		i := int(c.sent.Load() % int64(half))
		t.stamp(i, 1, at)
		c.delayed.record(c.clock.now()-at, 1)
		if _, err := c.conns[i].nc.Write(t.run(i, 1)); err != nil && ctx.Err() == nil {
			return fmt.Errorf("publish: %w", err)
		}
		c.sent.Add(1)
	}
	return nil
}

func (c *crowd) report(r *report) {
	n := c.o.connections
	sent := c.sent.Load()
	got, _ := c.f.got()
	r.add("connections", "connections", n, "")
	r.add("connect_rate", "connections opened, with a consumer", rate(n, c.first, c.opened), "per s")
	if c.o.pid > 0 {
		r.add("rss_per_connection_bytes", "broker RSS per connection", float64(c.full.rss-c.from.rss)/float64(n), "B")
		if c.o.idle >= idleLeast {
			r.add("idle_cpu_percent", "broker CPU with all connections idle", (c.idled.cpu-c.full.cpu).Seconds()/c.o.idle.Seconds()*100, "%")
		}
	}
	r.add("published", "published", sent, "messages")
	r.add("consumed", "consumed", got, "messages")
	r.add("publish_rate", "publish rate", rate(sent, c.publishing, c.published), "per s")
	r.quantiles("latency", "end-to-end latency", &c.f.latency)
	var delayed histogram
	c.delayed.collect(&delayed)
	r.quantiles("schedule_delay", "sent later than intended", &delayed)
	r.cost(c.session, sent, c.idled, c.to)
}
