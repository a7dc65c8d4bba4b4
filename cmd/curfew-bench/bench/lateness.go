package bench

import (
	"context"
	"time"
)

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
