package queue

import "github.com/curfewmq/curfew/sdk/hook"

// AddConsumer takes a consumer in and hands it what is ready.
func (q *Queue) AddConsumer(now hook.Instant, c *Consumer) error {
	if q.stopped != nil {
		return q.stopped
	}
	if q.consumers.exclusive() || c.Exclusive && q.consumers.count() > 0 {
		return ErrExclusiveUse
	}
	if q.consumers == nil {
		q.consumers = &consumers{single: q.cfg.SingleActive}
	}
	q.consumers.add(c)
	q.lease = 0
	q.settleDown(now)
	return nil
}

// RemoveConsumer takes a consumer out. What it holds unacknowledged stays with
// its channel. When it was the last one the queue's lease begins, or an
// auto-delete queue ends.
func (q *Queue) RemoveConsumer(now hook.Instant, c *Consumer) {
	if !q.consumers.remove(c) {
		return
	}
	c.removed = true
	switch {
	case q.consumers.count() > 0:
		q.settleDown(now)
	case q.cfg.AutoDelete:
		q.end(now, Departure{Reason: GoneAutoDelete})
	default:
		q.Touch(now)
	}
}

// wake gives a consumer whose sink was full another chance.
func (q *Queue) wake(now hook.Instant, c *Consumer) {
	c.stalled = false
	if c.removed {
		return
	}
	q.consumers.refresh(c)
	q.settleDown(now)
}

// Get hands one message to fn, with the number that remains; ok is false when
// there is none. It is a use of the queue.
func (q *Queue) Get(now hook.Instant, c *Consumer, fn func(d Delivery, remaining int)) (ok bool) {
	q.Touch(now)
	for q.ready > 0 {
		p, s, due := q.choose(now)
		r := q.store.read(*s)
		f := &q.levels[p.level]
		q.take(f, s, len(r.body))
		if due {
			q.leave(now, []pick{p}, hook.Verdict{})
			continue
		}
		q.reapDue(now) // what it was in front of does not remain if its time is up
		s = f.at(p.seq)
		r = q.store.read(*s)
		fn(q.delivery(p, s, &r), q.ready)
		q.handed(int(p.level), f, p.seq, s, c)
		q.rest(now)
		return true
	}
	return false
}

// deliver hands out ready messages while consumers want them.
func (q *Queue) deliver(now hook.Instant) {
	for q.ready > 0 && q.consumers.serve() != nil {
		if !q.handOut(now) {
			return
		}
	}
}

// choose returns the message to hand out next, of which there must be one, and
// whether its hooks have to be asked first.
func (q *Queue) choose(now hook.Instant) (p pick, s *slot, due bool) {
	l := q.top()
	f := &q.levels[l]
	seq := f.peek()
	s = f.at(seq)
	q.store.load(s.segment)
	at := f.deadline(seq)
	due = at != 0 && now >= at && !(q.fresh && seq >= f.fresh) || s.flags&askHead != 0
	return pick{seq: seq, level: int32(l)}, s, due
}

// handOut hands out at most maxBatch messages, and puts those that turn out to
// be due before their hooks. It reports whether it could do anything.
func (q *Queue) handOut(now hook.Instant) bool {
	w := q.work
	picks, due := w.picks[:0], w.due[:0]
	w.records = w.records[:0]
	for len(picks)+len(due) < maxBatch && q.ready > 0 {
		g := q.consumers.serve()
		if g == nil {
			break
		}
		p, s, isDue := q.choose(now)
		r := q.store.read(*s)
		q.take(&q.levels[p.level], s, len(r.body))
		if isDue {
			due = append(due, p)
			continue
		}
		p.consumer = g.next()
		q.charge(g, p.consumer)
		picks = append(picks, p)
		w.records = append(w.records, r)
	}
	w.picks, w.due = picks, due
	taken := q.send(picks, w.records)
	clear(picks)
	q.leave(now, due, hook.Verdict{})
	return taken > 0 || len(due) > 0
}

// charge counts a message against a consumer's credit and passes the turn on.
func (q *Queue) charge(g *group, c *Consumer) {
	g.turn++
	if c.NoAck {
		return
	}
	c.inflight++
	if c.credit() == 0 {
		g.turn-- // its place is taken by the one behind it
		q.consumers.deactivate(c)
	}
}

// send gives the picks to their consumers, in order, and returns how many were
// taken. Where a sink has no room for one the rest stays: a later message must
// not reach a consumer before an earlier one that it may get yet.
func (q *Queue) send(picks []pick, records []record) (taken int) {
	for taken < len(picks) {
		run := 1
		for taken+run < len(picks) && picks[taken+run].consumer == picks[taken].consumer {
			run++
		}
		n := q.sendTo(picks[taken].consumer, picks[taken:taken+run], records[taken:])
		taken += n
		if n < run {
			q.takeBack(picks[taken:], records[taken:])
			break
		}
	}
	return taken
}

// sendTo gives a consumer messages and returns how many it took.
func (q *Queue) sendTo(c *Consumer, picks []pick, records []record) int {
	ds := q.work.delivery[:0]
	for i, p := range picks {
		ds = append(ds, q.delivery(p, q.levels[p.level].at(p.seq), &records[i]))
	}
	q.work.delivery = ds
	n := c.Sink.Deliver(c, ds)
	for _, p := range picks[:n] {
		f := &q.levels[p.level]
		q.handed(int(p.level), f, p.seq, f.at(p.seq), c)
	}
	if n < len(picks) {
		c.stalled = true
	}
	return n
}

// takeBack makes picks ready again that no consumer has seen.
func (q *Queue) takeBack(picks []pick, records []record) {
	for i, p := range picks {
		f := &q.levels[p.level]
		q.untake(f, p.seq, f.at(p.seq), len(records[i].body))
		if !p.consumer.NoAck {
			p.consumer.inflight--
		}
		q.consumers.refresh(p.consumer)
	}
}

// handed counts a message that was handed out, and forgets it when no
// acknowledgement is due.
func (q *Queue) handed(l int, f *fifo, seq uint64, s *slot, c *Consumer) {
	if s.flags&redelivered != 0 {
		q.count.Redelivered++
	}
	if c.NoAck {
		q.count.DeliveredNoAck++
		q.drop(l, f, seq, s)
		return
	}
	f.handed = max(f.handed, seq+1)
	q.count.Delivered++
}

func (q *Queue) delivery(p pick, s *slot, r *record) Delivery {
	d := Delivery{
		Ref: ref(int(p.level), p.seq), Exchange: r.exchange, Key: r.key,
		Props: r.props, Body: r.body, Enqueued: r.enqueued,
		Redelivered: s.flags&redelivered != 0, Traced: s.flags&traced != 0,
	}
	if n := s.returns(); n > 0 && q.cfg.Kind == Quorum {
		d.Props = withDeliveryCount(r.props, int64(n))
	}
	return d
}
