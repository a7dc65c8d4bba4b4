package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	crowdBuffer = 4 << 10 // bytes that a member of a crowd reads at once, beyond a body
	crowdDoors  = 32      // connections that are opened, or closed, at the same time
)

func crowdFlags(f flags) {
	o := f.o
	f.whole(&o.connections, "connections", 2000, 2, 60_000, "`connections`, each with a consumer; the first half also publishes, to the queues of the others")
	f.whole(&o.queues, "queues", 0, 0, 60_000, "`queues` that the consumers share; 0 = each has one of its own")
	f.sized(100, stampSize)
	f.period(&o.idle, "idle", 5*time.Second, 0, time.Hour, "the `time` for which the broker is watched while nobody publishes")
	f.period(&o.every, "every", time.Second, time.Millisecond, time.Hour, "the `time` after which each publisher publishes again")
	f.period(&o.duration, "duration", 10*time.Second, 0, 240*time.Hour, "publish for this `time`")
}

// Crowd is the scenario of the same name. One goroutine publishes for all; each consumer has one that reads.
type crowd struct {
	s       *session
	f       *fleet
	conns   []*conn
	queues  []string
	pace    pacer
	sent    atomic.Int64
	done    atomic.Bool
	delayed tally

	from, full, idled, to     usage
	began, opened, loud, over int64 // instants: first connection, last one, first message, last one; over: the publisher's until done
}

func runCrowd(ctx context.Context, s *session) (*report, error) {
	pace, err := s.pace()
	if err != nil {
		return nil, err
	}
	if s.o.queues == 0 {
		s.o.queues = s.o.connections
	}
	c := &crowd{s: s, f: s.newFleet(ctx), pace: pace}
	err = c.run(ctx)
	if e := c.f.stop(); err == nil {
		err = e
	}
	if err := errors.Join(err, pace.Close()); err != nil {
		return nil, err
	}
	return c.report(), nil
}

func (c *crowd) run(ctx context.Context) error {
	var err error
	if c.from, err = c.s.usage(); err != nil {
		return err
	}
	if c.queues, err = c.s.several(); err != nil {
		return err
	}
	c.began = c.s.clock.now()
	if err := c.gather(); err != nil {
		return err
	}
	c.opened = c.s.clock.now()
	if err := settle(ctx, rest); err != nil {
		return err
	}
	if c.full, err = c.s.usage(); err != nil {
		return err
	}
	if err := settle(ctx, c.s.o.idle); err != nil {
		return err
	}
	if c.idled, err = c.s.usage(); err != nil {
		return err
	}
	if err := c.talk(); err != nil {
		return err
	}
	c.to, err = c.s.usage()
	return err
}

// Gather opens all connections and subscribes on each.
func (c *crowd) gather() error {
	n := int(c.s.o.connections)
	buffer := crowdBuffer + int(min(c.s.o.size, frameMax-crowdBuffer))
	c.conns = make([]*conn, n)
	err := inParallel(n, func(i int) (err error) {
		c.conns[i], err = c.s.openSmall(c.f.ctx, c.s.o.broker, buffer)
		return err
	})
	latency := &tally{}
	for i, conn := range c.conns {
		if conn == nil {
			continue // err says why
		}
		k := c.f.consumer(conn)
		k.latency = latency
		if err == nil {
			err = k.subscribe(0, c.queue(i))
		}
		if err == nil {
			c.f.start(k.run)
		}
	}
	return err
}

// Queue is the queue that connection i consumes from.
func (c *crowd) queue(i int) string { return c.queues[i%len(c.queues)] }

// InParallel does something n times, some of them at once, and returns the first error.
func inParallel(n int, do func(i int) error) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make(chan error, crowdDoors)
	for range crowdDoors {
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

// Talk lets half of the connections publish.
func (c *crowd) talk() error {
	c.loud = c.s.clock.now()
	c.f.start(func() error {
		err := c.publish(c.f.ctx)
		c.over = c.s.clock.now()
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
		keys = append(keys, c.queue(half+i))
	}
	t := newTemplate(c.s.content(keys, c.conns[0].frameMax))
	stop := context.AfterFunc(ctx, func() {
		for _, conn := range c.conns[:half] {
			_ = conn.nc.SetWriteDeadline(time.Unix(1, 0))
		}
	})
	defer stop()
	until := c.loud + int64(c.s.o.duration)
	s := newSchedule(c.loud, float64(half)/c.s.o.every.Seconds(), 1)
	for ctx.Err() == nil && c.s.clock.now() < until {
		if err := c.s.clock.nap(c.pace, min(until, s.next())); err != nil {
			return err
		}
		n, at := s.take(min(until-1, c.s.clock.now()), 1)
		if n == 0 {
			continue
		}
		i := int(c.sent.Load() % int64(half))
		t.stamp(i, 1, at)
		c.delayed.record(c.s.clock.now()-at, 1)
		if _, err := c.conns[i].nc.Write(t.run(i, 1)); err != nil && ctx.Err() == nil {
			return fmt.Errorf("publish: %w", err)
		}
		c.sent.Add(1)
	}
	return nil
}

func (c *crowd) report() *report {
	r := &report{}
	n := c.s.o.connections
	sent := c.sent.Load()
	got, _ := c.f.got()
	r.add("connections", "connections", n, "")
	r.add("connect_rate", "connections opened, with a consumer", rate(n, c.began, c.opened), "per s")
	if c.s.o.pid > 0 {
		r.add("rss_per_connection_bytes", "broker RSS per connection", float64(c.full.rss-c.from.rss)/float64(n), "B")
		if c.s.o.idle >= idleLeast {
			r.add("idle_cpu_percent", "broker CPU with all connections idle", (c.idled.cpu-c.full.cpu).Seconds()/c.s.o.idle.Seconds()*100, "%")
		}
	}
	r.add("published", "published", sent, "messages")
	r.add("consumed", "consumed", got, "messages")
	r.add("publish_rate", "publish rate", rate(sent, c.loud, c.over), "per s")
	r.quantiles("latency", "end-to-end latency", &c.f.latency)
	var delayed histogram
	c.delayed.collect(&delayed)
	r.quantiles("schedule_delay", "sent later than intended", &delayed)
	r.cost(c.s, sent, c.idled, c.to)
	return r
}
