package queue

import "github.com/curfewmq/curfew/sdk/hook"

// AddConsumer takes a consumer in and hands it what is ready.
func (q *Queue) AddConsumer(now hook.Instant, c *Consumer) error {
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
		q.end(now, GoneAutoDelete)
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
		fn(q.delivery(p, s, &r), q.ready)
		q.handed(f, p.seq, s, c)
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

// send gives every consumer its share of the picks, in one call each, and
// returns how many messages were taken.
func (q *Queue) send(picks []pick, records []record) (taken int) {
	for i := range picks {
		c := picks[i].consumer
		if c == nil {
			continue // its consumer was served with an earlier one
		}
		taken += q.sendTo(c, picks[i:], records[i:])
	}
	return taken
}

// sendTo gives a consumer its share and clears it from picks.
func (q *Queue) sendTo(c *Consumer, picks []pick, records []record) (taken int) {
	ds := q.work.delivery[:0]
	mine := q.work.mine[:0]
	for i := range picks {
		if picks[i].consumer != c {
			continue
		}
		picks[i].consumer = nil
		mine = append(mine, picks[i])
		s := q.levels[picks[i].level].at(picks[i].seq)
		ds = append(ds, q.delivery(picks[i], s, &records[i]))
	}
	q.work.delivery, q.work.mine = ds, mine
	taken = c.Sink.Deliver(c, ds)
	for i, p := range mine {
		f := &q.levels[p.level]
		s := f.at(p.seq)
		if i < taken {
			q.handed(f, p.seq, s, c)
			continue
		}
		q.untake(f, p.seq, s, len(ds[i].Body))
		if !c.NoAck {
			c.inflight--
		}
	}
	if taken < len(mine) {
		c.stalled = true
		q.consumers.refresh(c)
	}
	return taken
}

// handed counts a message that was handed out, and forgets it when no
// acknowledgement is due.
func (q *Queue) handed(f *fifo, seq uint64, s *slot, c *Consumer) {
	if s.flags&redelivered != 0 {
		q.count.Redelivered++
	}
	if c.NoAck {
		q.count.DeliveredNoAck++
		q.drop(f, seq, s)
		return
	}
	q.count.Delivered++
}

func (q *Queue) delivery(p pick, s *slot, r *record) Delivery {
	d := Delivery{
		Ref: ref(int(p.level), p.seq), Exchange: r.exchange, Key: r.key,
		Props: r.props, Body: r.body, Redelivered: s.flags&redelivered != 0,
	}
	if s.deliveries > 0 && q.cfg.Kind == Quorum {
		d.Props = withDeliveryCount(r.props, int64(s.deliveries))
	}
	return d
}
