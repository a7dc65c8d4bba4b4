package bench

import "context"

func expireFlags(f flags) {
	f.whole(&f.o.publishers, "publishers", 1, 1, 10_000, "`connections` that publish")
	f.whole(&f.o.consumers, "consumers", 0, 0, 10_000, "`connections` that consume from the dead-letter queue; 0 = what died stays there")
	f.sized(100, 0)
	f.batched(64) // what is measured comes after the publishing
	f.counted(1_000_000, 1, "`messages` to publish")
	f.confirming(0, 0)
	f.acking()
	f.expiring("1000")
	f.o.queues, f.o.mortal = 1, true
}

// Expiry is the scenario "expire".
type expiry struct {
	load
	dead   int64 // messages that came out at the other end
	deadAt int64 // the last of them
}

func runExpire(ctx context.Context, s *session) (*report, error) {
	if s.o.ttl < 0 && !s.o.expiration.set {
		s.o.ttl = 1000
	}
	queue, dead, err := s.mortal()
	if err != nil {
		return nil, err
	}
	f := s.newFleet(ctx)
	e := expiry{load: load{s: s, f: f}}
	err = e.run(queue, dead)
	if e := f.stop(); err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	return e.report(), nil
}

func (e *expiry) run(queue, dead string) error {
	for range e.s.o.consumers {
		if err := e.f.consume(dead); err != nil {
			return err
		}
	}
	for i := range e.s.o.publishers {
		if err := e.publisher(i, []string{queue}); err != nil {
			return err
		}
	}
	var err error
	if e.from, err = e.s.usage(); err != nil {
		return err
	}
	e.began = e.s.clock.now()
	for _, p := range e.f.publishers {
		if p.limit > 0 {
			e.f.publish(p)
		}
	}
	if err := e.f.published(); err != nil {
		return err
	}
	if err := e.await(dead); err != nil {
		return err
	}
	e.to, err = e.s.usage()
	return err
}

func (e *expiry) await(dead string) (err error) {
	patience := patience + e.s.lifetime()
	if e.s.o.consumers > 0 {
		err = e.f.drained(e.f.sent(), patience)
		e.dead, e.deadAt = e.f.got()
		return err
	}
	e.dead, e.deadAt, err = e.f.filled(dead, e.f.sent(), patience)
	return err
}

func (e *expiry) report() *report {
	r := &report{}
	sent := e.f.sent()
	r.add("published", "published", sent, "messages")
	r.add("dead_lettered", "dead-lettered", e.dead, "messages")
	r.add("publish_rate", "publish rate", rate(sent, e.began, e.f.ended()), "per s")
	r.add("expire_rate", "rate, first publish to last death", rate(e.dead, e.began, e.deadAt), "per s")
	r.add("duration_seconds", "time, first publish to last death", float64(e.deadAt-e.began)/1e9, "s")
	e.f.confirmed(r)
	r.cost(e.s, sent, e.from, e.to)
	return r
}
