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
	f.acking()
	f.o.mortal = true
}

// Lifetime is the longest a message of this session can live.
func (s *session) lifetime() time.Duration {
	ms := max(0, s.o.ttl)
	if s.o.expiration.set && (s.o.ttl < 0 || s.o.expiration.hi < ms) {
		ms = s.o.expiration.hi
	}
	return time.Duration(ms) * time.Millisecond
}

func runLateness(ctx context.Context, s *session) (*report, error) {
	if s.o.ttl < 0 && !s.o.expiration.set {
		s.o.expiration = span{lo: 100, hi: 10_000, set: true}
	}
	queue, dead, err := s.mortal()
	if err != nil {
		return nil, err
	}
	f := s.newFleet(ctx)
	l := load{s: s, f: f}
	err = l.late(queue, dead)
	if e := f.stop(); err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	return l.lateReport(), nil
}

func (l *load) late(queue, dead string) error {
	if err := l.f.consume(dead); err != nil {
		return err
	}
	c := l.s.content([]string{queue}, 0)
	c.due = true
	p, err := l.f.publisher(c, 0)
	if err != nil {
		return err
	}
	p.rate, p.actual = float64(l.s.o.rate), true
	if l.from, err = l.s.usage(); err != nil {
		return err
	}
	l.began = l.s.clock.now()
	p.until = l.began + int64(l.s.o.duration)
	l.f.publish(p)
	if err := l.f.published(); err != nil {
		return err
	}
	if err := l.f.drained(l.f.sent(), patience+l.s.lifetime()); err != nil {
		return err
	}
	l.to, err = l.s.usage()
	return err
}

func (l *load) lateReport() *report {
	r := &report{}
	sent := l.f.sent()
	got, _ := l.f.got()
	h := &l.f.latency
	r.add("published", "published", sent, "messages")
	r.add("publish_rate", "publish rate", rate(sent, l.began, l.f.ended()), "per s")
	r.add("arrived", "arrived at the dead-letter queue", got, "messages")
	r.add("missing", "never arrived", sent-got, "messages")
	r.quantiles("lateness", "lateness", h)
	if h.n > 0 {
		r.add("earliest_ms", "earliest", millis(h.min), "ms")
		r.add("early", "before their deadline", int64(h.negative()), "messages")
	}
	l.f.delayed(r)
	r.cost(l.s, sent, l.from, l.to)
	return r
}
