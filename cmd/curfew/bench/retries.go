package bench

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

func retriesFlags(f flags) {
	f.whole(&f.o.publishers, "publishers", 1, 1, 10_000, "`connections` that publish")
	f.whole(&f.o.consumers, "consumers", 1, 1, 10_000, "`connections` that reject what they get")
	f.sized(100, 0)
	f.batched(64)
	f.counted(20_000, 1, "`messages` that go round")
	f.whole(&f.o.rounds, "rounds", 15, 1, 1_000_000, "how many `times` each message is rejected before it is acknowledged")
	f.whole(&f.o.ttl, "ttl", 500, 0, maxMillis, "how many `milliseconds` a rejected message waits")
	f.whole(&f.o.prefetch, "prefetch", 200, 1, math.MaxUint16, "unacknowledged `messages` per consumer")
	f.confirming(0, 0)
	f.o.queues, f.o.mortal = 1, true
}

// Retries is the scenario of the same name: what is rejected goes to a second queue, from which its TTL takes it back.
type retries struct {
	load
	rejected int64 // and come back
	last     int64 // instant of the last delivery
}

func runRetries(ctx context.Context, s *session) (*report, error) {
	waiting := s.prefix + "retry"
	work, err := s.queue("0", deadTo(waiting)...)
	if err != nil {
		return nil, err
	}
	if _, err := s.bare("retry", append(s.ttl(), deadTo(work)...)...); err != nil {
		return nil, err
	}
	f := s.newFleet(ctx)
	f.rejections = &atomic.Int64{}
	f.rejections.Store(s.o.messages * s.o.rounds)
	r := retries{load: load{s: s, f: f}}
	err = r.run(work)
	if e := f.stop(); err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	return r.report(), nil
}

func (r *retries) run(work string) error {
	for range r.s.o.consumers {
		if err := r.f.consume(work); err != nil {
			return err
		}
	}
	for i := range r.s.o.publishers {
		if err := r.publisher(i, []string{work}); err != nil {
			return err
		}
	}
	var err error
	if r.from, err = r.s.usage(); err != nil {
		return err
	}
	r.began = r.s.clock.now()
	for _, p := range r.f.publishers {
		if p.limit > 0 {
			r.f.publish(p)
		}
	}
	if err := r.f.published(); err != nil {
		return err
	}
	if err := r.f.drained(r.f.sent()*(r.s.o.rounds+1), patience+r.s.lifetime()); err != nil {
		return err
	}
	got, last := r.f.got()
	r.rejected, r.last = max(0, got-r.f.sent()), last
	r.to, err = r.s.usage()
	return err
}

func (r *retries) report() *report {
	out := &report{}
	sent := r.f.sent()
	got, _ := r.f.got()
	out.add("published", "published", sent, "messages")
	out.add("rejected", "rejected, and back", r.rejected, "times")
	out.add("missing", "did not come back", sent*(r.s.o.rounds+1)-got, "times")
	out.add("retry_rate", "retries", rate(r.rejected, r.began, r.last), "per s")
	took := time.Duration(r.last - r.began)
	out.add("duration_seconds", "time, first publish to last delivery", took.Seconds(), "s")
	out.add("late_ms", "more per round than the TTL", millis(int64(took))/float64(r.s.o.rounds)-float64(r.s.o.ttl), "ms")
	r.f.confirmed(out)
	out.cost(r.s, r.rejected, r.from, r.to)
	return out
}
