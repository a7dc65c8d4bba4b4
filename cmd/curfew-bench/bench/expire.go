package bench

import (
	"context"
	"time"
)

func expireFlags(f flags) {
	f.whole(&f.o.publishers, "publishers", 1, 1, 10_000, "`connections` that publish")
	f.whole(&f.o.consumers, "consumers", 0, 0, 10_000, "`connections` that consume from the dead-letter queue; 0 = messages stay there")
	f.sized(100, 0)
	f.batched(64) // publishing is not measured
	f.counted(1_000_000, 1, "`messages` to publish")
	f.confirming(0, 0)
	f.acking()
	f.expiring("1000")
	f.o.queues, f.o.mortal = 1, true
}

type expiry struct {
	*load

	dead   int64 // messages that were dead-lettered
	deadAt int64 // instant of the last of these
}

func startExpire(l *load) measurement { return &expiry{load: l} }

func (e *expiry) run(context.Context) error {
	if e.o.ttl < 0 && !e.o.expiration.set {
		e.o.ttl = 1000
	}
	queue, dead, err := e.mortal()
	if err != nil {
		return err
	}
	if err := e.consume(dead); err != nil {
		return err
	}
	if err := e.publishTo(queue); err != nil {
		return err
	}
	return e.measured(func() (err error) {
		patience := patience + e.lifetime()
		if e.o.consumers == 0 {
			e.dead, e.deadAt, err = e.f.filled(dead, e.f.sent(), patience)
			return err
		}
		err = e.f.drained(e.f.sent(), patience)
		e.dead, e.deadAt = e.f.got()
		return err
	})
}

func (e *expiry) report(r *report) {
	sent := e.f.sent()
	r.add("published", "published", sent, "messages")
	r.add("dead_lettered", "dead-lettered", e.dead, "messages")
	r.add("publish_rate", "publish rate", rate(sent, e.began, e.f.ended()), "per s")
	r.add("expire_rate", "rate, first publish to last death", rate(e.dead, e.began, e.deadAt), "per s")
	r.add("duration_seconds", "time, first publish to last death", float64(e.deadAt-e.began)/1e9, "s")
	e.f.confirmed(r)
	r.cost(e.session, sent, e.from, e.to)
}

func latenessFlags(f flags) {
	f.sized(16, stampSize)
	f.batched(1)
	f.whole(&f.o.rate, "rate", 5000, 1, maxCount, "`messages` per second")
	f.period(&f.o.duration, "duration", 20*time.Second, time.Millisecond, 240*time.Hour, "publish for this `time`")
	f.expiring("--expiration 100..10000")
	f.waiting("how messages `wait`: ttl (until they expire), exchange (x-delayed-message) or hold (x-deliver-after)", byTTL, byExchange, byHold)
	f.acking()
	f.o.publishers, f.o.mortal = 1, true
}

type lateness struct{ *load }

func startLateness(l *load) measurement { return lateness{l} }

func (l lateness) run(context.Context) error {
	if l.o.ttl < 0 && !l.o.expiration.set {
		l.o.expiration = span{lo: 100, hi: 10_000, set: true}
	}
	c, arrival, err := l.places()
	if err != nil {
		return err
	}
	if err := l.f.consume(arrival); err != nil {
		return err
	}
	c.due = true
	p, err := l.publisher(0, c)
	if err != nil {
		return err
	}
	p.actual = true
	return l.measured(func() error { return l.f.drained(l.f.sent(), patience+l.lifetime()) })
}

func (l lateness) report(r *report) {
	sent := l.f.sent()
	got, _ := l.f.got()
	h := &l.f.latency
	r.add("published", "published", sent, "messages")
	r.add("publish_rate", "publish rate", rate(sent, l.began, l.f.ended()), "per s")
	r.add("arrived", "arrived when their time was up", got, "messages")
	r.add("missing", "never arrived", sent-got, "messages")
	r.quantiles("lateness", "lateness", h)
	if h.n > 0 {
		r.add("earliest_ms", "earliest", millis(h.min), "ms")
		r.add("early", "before their time", int64(h.negative()), "messages")
	}
	l.f.delayed(r)
	r.cost(l.session, sent, l.from, l.to)
}
