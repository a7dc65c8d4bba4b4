package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

const (
	calm      = time.Second // how long the bystander is measured at least before the storm
	aftermath = 500 * time.Millisecond
)

func stormFlags(f flags) {
	f.sized(100, 0)
	f.batched(64) // publishing is not measured
	f.counted(200_000, 1, "`messages` that fall due at once")
	f.period(&f.o.delay, "delay", 15*time.Second, 2*time.Second, time.Hour, "the `time` from the first publish until all fall due; all must be confirmed a second before")
	f.period(&f.o.every, "every", time.Millisecond, 100*time.Microsecond, time.Second, "the `time` between two actions of a bystander")
	f.confirming(4096, 1)
	f.waiting("how messages `wait`: ttl (until they expire), exchange (x-delayed-message) or hold (x-deliver-after)", byTTL, byExchange, byHold)
	f.o.mortal = true
}

// storm has two fleets: one publishes the messages that fall due, and the other one is the bystander.
type storm struct {
	*load

	by    *fleet    // the bystander's publisher and consumer
	asker *asker    // the bystander's passive declares
	quiet snapshots // before the storm
	loud  snapshots // from the instant at which all fell due until shortly after the last arrived

	due, over  int64 // instants
	came, sent int64
}

// snapshots are the bystander's latencies in one phase.
type snapshots struct{ deliver, declare, delayed histogram }

func startStorm(l *load) measurement { return &storm{load: l} }

func (st *storm) run(ctx context.Context) error {
	to, arrival, err := st.places()
	if err != nil {
		return err
	}
	own, err := st.bare("bystander")
	if err != nil {
		return err
	}
	st.by = st.newFleet(ctx)
	st.cleanUp(st.leave)
	st.sample(&st.from)
	if err := st.fill(to); err != nil { //nolint:contextcheck // the fleets' contexts descend from ctx
		return err
	}
	if err := st.bystand(own); err != nil {
		return err
	}
	if err := st.watch(st.due); err != nil {
		return err
	}
	st.collect(&st.quiet)
	if st.came, st.over, err = st.by.filled(arrival, st.sent, patience); err != nil {
		return err
	}
	if err := st.watch(st.clock.now() + int64(aftermath)); err != nil {
		return err
	}
	if err := st.finish(); err != nil {
		return err
	}
	st.sample(&st.to)
	return nil
}

// fill publishes messages that all fall due at the same instant, so each gets a shorter expiration than the one before.
func (st *storm) fill(to content) error {
	p, err := st.f.publisher(to, st.o.confirm)
	if err != nil {
		return err
	}
	p.limit = st.o.messages
	st.due = st.clock.now() + int64(st.o.delay)
	end := time.Now().Add(st.o.delay)
	ctx, cancel := context.WithDeadlineCause(st.f.ctx, end, fmt.Errorf("--delay %v: the broker had not taken the messages when they fell due: raise it", st.o.delay))
	defer cancel()
	if err := p.c.nc.SetWriteDeadline(end); err != nil {
		return err
	}
	if err := st.pour(ctx, p, to); err != nil {
		return err
	}
	st.sent = p.sent.Load()
	if early := st.due - st.clock.now(); early < int64(calm) {
		return fmt.Errorf("--delay %v: the broker had taken the %d messages %v before they fell due, %v are needed: raise it",
			st.o.delay, st.sent, time.Duration(early), calm)
	}
	return nil
}

// pour publishes until every message is confirmed, or ctx ends. The connection's write deadline is the same as that of ctx.
func (st *storm) pour(ctx context.Context, p *publisher, c content) error {
	c.frameMax = p.c.frameMax
	for {
		now := st.clock.now()
		n, err := p.allowed(ctx, now)
		if err != nil {
			return err
		}
		if n == 0 {
			return p.gate.drained(ctx)
		}
		if ms := remaining(st.due, now); ms != c.expiration.lo {
			c.expiration = span{lo: ms, hi: ms, set: true}
			p.t = newTemplate(c)
			p.pos = 0
		}
		err = p.write(min(n, int64(p.t.batch)), now)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			<-ctx.Done() // both deadlines are the same instant
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// remaining returns the time until due in milliseconds, rounded up.
func remaining(due, now int64) int64 {
	return max(0, (due-now+int64(time.Millisecond)-1)/int64(time.Millisecond))
}

// bystand starts the bystander: a publisher and a consumer of one queue, and an asker that declares the queue passively.
func (st *storm) bystand(own string) error {
	if err := st.by.consume(own); err != nil {
		return err
	}
	c := content{keys: []string{own}, size: 16, ttl: -1}
	p, err := st.by.publisher(c, 0)
	if err != nil {
		return err
	}
	p.rate = float64(time.Second) / float64(st.o.every)
	if st.asker, err = st.newAsker(st.by.ctx, own); err != nil {
		return err
	}
	st.by.publish(p)
	st.by.start(func() error { return st.asker.run(st.by.ctx) })
	return nil
}

// leave stops the bystander. The asker's connection is closed after its last answer.
func (st *storm) leave() error {
	err := st.by.stop()
	if st.asker != nil {
		st.asker.close()
	}
	return err
}

func (st *storm) watch(until int64) error {
	return st.by.until(func() (bool, error) { return st.clock.now() >= until, nil })
}

// finish ends the bystander's publishing and waits for its last deliveries, because the slowest may be among them.
func (st *storm) finish() error {
	st.asker.stop.Store(true)
	for _, p := range st.by.publishers {
		p.stop.Store(true)
	}
	if err := st.by.published(); err != nil {
		return err
	}
	sent := st.by.sent()
	if err := st.by.drained(sent, patience); err != nil {
		return err
	}
	if got, _ := st.by.got(); got < sent {
		return fmt.Errorf("the bystander published %d messages and got %d", sent, got)
	}
	st.collect(&st.loud)
	return nil
}

func (st *storm) collect(into *snapshots) {
	st.by.sweep()
	into.deliver = st.by.latency
	st.by.latency = histogram{}
	st.asker.latency.collect(&into.declare)
	for _, p := range st.by.publishers {
		p.delayed.collect(&into.delayed)
	}
}

func (st *storm) report(r *report) {
	r.add("messages", "fell due at once", st.sent, "messages")
	r.add(st.outcome("dead_lettered"), st.outcome("dead-lettered"), st.came, "messages")
	r.add("storm_seconds", "from due to the last "+st.outcome("dead-lettered"), float64(st.over-st.due)/1e9, "s")
	r.quantiles("quiet_deliver", "before: publish to deliver", &st.quiet.deliver)
	r.quantiles("quiet_declare", "before: passive declare", &st.quiet.declare)
	r.quantiles("storm_deliver", "storm: publish to deliver", &st.loud.deliver)
	r.quantiles("storm_declare", "storm: passive declare", &st.loud.declare)
	r.quantiles("storm_schedule_delay", "storm: sent later than intended", &st.loud.delayed)
	r.cost(st.session, st.sent, st.from, st.to)
}

// outcome returns the word for what happened to messages that fell due; expired is the word if they expire.
func (st *storm) outcome(expired string) string {
	if st.o.held() {
		return "released"
	}
	return expired
}
