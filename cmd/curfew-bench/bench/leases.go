package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// idleLeast is the shortest time over which idle CPU is reported.
const idleLeast = time.Second

func leasesFlags(f flags) {
	o := f.o
	f.whole(&o.queues, "queues", 10_000, 1, 1_000_000, "`queues` to declare")
	f.whole(&o.expires, "expires", 30_000, 1000, maxMillis, "x-expires of the queues in `milliseconds`; all must be declared before the first expires")
	f.whole(&o.window, "window", 100, 1, 1000, "`declares` in flight; 1 = each waits for the previous answer")
	f.whole(&o.sample, "sample", 500, 1, 10_000, "how many of the `queues` to watch until they are deleted")
}

// leases declares most queues in bulk, with many declarations under way at once. In between, evenly spread, it declares the watched
// queues one at a time over a separate connection, so that the start of each lease is known to within the time of one answer.
type leases struct {
	*load

	bulk  int
	p     *prober
	round histogram // declare to declare-ok, in bulk

	full, idled usage // with all queues: at rest, and shortly before the first lease runs out
	idle        time.Duration
	declared    int64 // instant of the last declare-ok
}

func startLeases(l *load) measurement { return &leases{load: l} }

func (l *leases) run(ctx context.Context) (err error) {
	if l.p, err = l.newProber(ctx); err != nil {
		return err
	}
	l.cleanUp(l.p.close)
	l.bulk = int(l.o.queues) - len(l.p.leases)
	stop := context.AfterFunc(ctx, func() { l.interrupt() })
	defer stop()
	l.sample(&l.from)
	if err := l.declareAll(); err != nil {
		return err
	}
	l.sample(&l.to)
	if err := l.sit(ctx); err != nil {
		return err
	}
	return l.p.watch(ctx)
}

// interrupt ends reads and writes in progress.
func (l *leases) interrupt() {
	past := time.Unix(1, 0)
	_ = l.admin.nc.SetDeadline(past)
	_ = l.p.c.nc.SetDeadline(past)
}

func (s *session) leaseTime() int64 { return s.o.expires * int64(time.Millisecond) }

// leased returns the declaration of a queue with a lease. The session does not delete this queue at the end.
func (s *session) leased(name string) *amqp.QueueDeclare {
	args := append(amqp.Table{{Key: "x-expires", Value: s.o.expires}}, s.o.queueArgs.table...)
	return &amqp.QueueDeclare{Queue: s.prefix + name, Durable: s.o.durable, Arguments: args}
}

func (l *leases) declareAll() error {
	turns := make(chan struct{}, len(l.p.leases))
	watched := make(chan error, 1)
	l.began = l.clock.now()
	go func() { watched <- l.p.declare(turns) }()
	err := l.declareBulk(turns)
	close(turns)
	err = errors.Join(err, <-watched)
	l.declared = l.clock.now()
	return err
}

// declareBulk keeps a window of declarations under way on the administrative connection. It sends to turns whenever a watched queue is
// to be declared.
func (l *leases) declareBulk(turns chan<- struct{}) error {
	var out []byte
	asked := make([]int64, l.bulk)
	given := 0
	for sent, answered := 0, 0; answered < l.bulk; {
		out = out[:0]
		now := l.clock.now()
		for sent < l.bulk && int64(sent-answered) < l.o.window {
			out = amqp.AppendMethod(out, channel, l.leased(strconv.Itoa(sent)))
			asked[sent] = now
			sent++
		}
		if _, err := l.admin.nc.Write(out); err != nil {
			return fmt.Errorf("queue.declare: %w", err)
		}
		n, err := l.answers(asked[answered:])
		if err != nil {
			return fmt.Errorf("queue %d of %d: %w", answered+n, l.bulk, err)
		}
		for answered += n; given < len(l.p.leases)*answered/l.bulk; given++ {
			turns <- struct{}{}
		}
	}
	for ; given < len(l.p.leases); given++ {
		turns <- struct{}{}
	}
	return nil
}

// answers waits for a declare-ok, and also processes any that have arrived with it. asked has the instants of the declarations.
func (l *leases) answers(asked []int64) (n int, err error) {
	if _, err := expect[*amqp.QueueDeclareOK](l.admin.reply()); err != nil {
		return 0, err
	}
	now := l.clock.now()
	for {
		l.round.record(now-asked[n], 1)
		n++
		f, ok, err := l.admin.next()
		if err != nil || !ok {
			return n, err
		}
		if class, method, err := amqp.MethodID(f.Payload); err != nil || class != amqp.ClassQueue || method != amqp.MethodQueueDeclareOK || n == len(asked) {
			return n, errors.Join(errors.New("unexpected answer"), err, complaint(f.Payload))
		}
	}
}

// sit waits for the broker to rest while all queues exist, and then samples its memory, and its CPU time until shortly before the first
// lease ends.
func (l *leases) sit(ctx context.Context) error {
	left := time.Duration(l.began + l.leaseTime() - l.clock.now())
	if need := rest + 2*margin; left < need {
		took := time.Duration(l.declared - l.began).Round(time.Millisecond)
		return fmt.Errorf("--expires %d: declaring took %v, and the queues have to be there for %v more to be counted: raise it above %d",
			l.o.expires, took, need, (took + need).Milliseconds())
	}
	if err := l.sampleAfter(ctx, rest, &l.full); err != nil {
		return err
	}
	l.idle = left - rest - 2*margin
	return l.sampleAfter(ctx, l.idle, &l.idled)
}

func (l *leases) report(r *report) {
	n := l.o.queues
	r.add("queues", "queues", n, "")
	r.add("declare_rate", "declare rate", rate(n, l.began, l.declared), "per s")
	r.quantiles("declare", "declare", &l.round)
	l.p.report(r)
	if l.o.pid > 0 {
		r.add("rss_per_queue_bytes", "broker RSS per queue", float64(l.full.rss-l.from.rss)/float64(n), "B")
		if l.idle >= idleLeast {
			r.add("idle_cpu_percent", "broker CPU with all queues idle", (l.idled.cpu-l.full.cpu).Seconds()/l.idle.Seconds()*100, "%")
			r.add("idle_seconds", "measured over", l.idle.Seconds(), "s")
		}
	}
	l.to.rss = l.full.rss
	r.cost(l.session, n, l.from, l.to)
}
