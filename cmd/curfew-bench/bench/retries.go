package bench

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

func retriesFlags(f flags) {
	f.whole(&f.o.publishers, "publishers", 1, 1, 10_000, "`connections` that publish")
	f.whole(&f.o.consumers, "consumers", 1, 1, 10_000, "`connections` that reject the messages")
	f.sized(100, 0)
	f.batched(64)
	f.counted(20_000, 1, "`messages` that go round")
	f.whole(&f.o.rounds, "rounds", 15, 1, 1_000_000, "how many `times` each message is rejected before it is acknowledged")
	f.whole(&f.o.ttl, "ttl", 500, 0, maxMillis, "how many `milliseconds` a rejected message waits")
	f.whole(&f.o.prefetch, "prefetch", 200, 1, math.MaxUint16, "unacknowledged `messages` per consumer")
	f.confirming(0, 0)
	f.o.queues, f.o.mortal = 1, true
}

// retries rejects messages, which go to a second queue. When they expire there, they return to the first.
type retries struct {
	*load

	rejected int64 // that also returned
	last     int64 // instant of the last delivery
}

func startRetries(l *load) measurement { return &retries{load: l} }

func (r *retries) run(context.Context) error {
	work, err := r.queue("0", deadTo(r.prefix+"retry")...)
	if err != nil {
		return err
	}
	if _, err := r.bare("retry", append(r.ttl(), deadTo(work)...)...); err != nil {
		return err
	}
	r.f.rejections = &atomic.Int64{}
	r.f.rejections.Store(r.o.messages * r.o.rounds)
	if err := r.consume(work); err != nil {
		return err
	}
	if err := r.publishTo(work); err != nil {
		return err
	}
	return r.measured(func() error {
		err := r.f.drained(r.f.sent()*(r.o.rounds+1), patience+r.lifetime())
		got, last := r.f.got()
		r.rejected, r.last = max(0, got-r.f.sent()), last
		return err
	})
}

func (r *retries) report(out *report) {
	sent := r.f.sent()
	got, _ := r.f.got()
	out.add("published", "published", sent, "messages")
	out.add("rejected", "rejected, and back", r.rejected, "times")
	out.add("missing", "did not come back", sent*(r.o.rounds+1)-got, "times")
	out.add("retry_rate", "retries", rate(r.rejected, r.began, r.last), "per s")
	took := time.Duration(r.last - r.began)
	out.add("duration_seconds", "time, first publish to last delivery", took.Seconds(), "s")
	out.add("late_ms", "more per round than the TTL", millis(int64(took))/float64(r.o.rounds)-float64(r.o.ttl), "ms")
	r.f.confirmed(out)
	out.cost(r.session, r.rejected, r.from, r.to)
}
