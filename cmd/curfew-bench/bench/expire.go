package bench

import "context"

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
