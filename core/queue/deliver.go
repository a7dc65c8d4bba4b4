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
	q.afterChange(now)
	return nil
}

// RemoveConsumer takes a consumer out. What it holds unacknowledged stays with
// its channel. When it was the last one the queue's lease begins, or an
// auto-delete queue ends.
func (q *Queue) RemoveConsumer(now hook.Instant, c *Consumer) { q.Leave(now, []*Consumer{c}, nil) }

// Leave takes consumers out whose channels end, and takes back what those had been
// handed. Nobody is served in between: who is left gets the messages in order.
func (q *Queue) Leave(now hook.Instant, cs []*Consumer, held []PendingAck) {
	removed := false
	for _, c := range cs {
		if q.consumers.remove(c) {
			c.removed, removed = true, true
		}
	}
	if removed && q.consumers.count() == 0 {
		if q.cfg.AutoDelete {
			q.end(now, Deletion{Reason: DeletedAutoDelete})
			return
		}
		q.Touch(now)
	}
	if q.stopped == nil && (removed || len(held) > 0) {
		q.settleAll(now, Return, held)
	}
}

// wake gives a consumer whose sink was full another chance.
func (q *Queue) wake(now hook.Instant, c *Consumer) {
	c.stalled = false
	if c.removed {
		return
	}
	q.consumers.refresh(c)
	q.afterChange(now)
}

// Get hands one message to fn, with the number that remains; ok is false when
// there is none. It is a use of the queue.
func (q *Queue) Get(now hook.Instant, c *Consumer, fn func(d Delivery, remaining int)) (ok bool) {
	q.Touch(now)
	q.buf.asked = q.buf.asked[:0] // of a turn that broke off
	defer q.markAsked()
	for q.ready > 0 {
		p, s, is := q.nextMessage(now)
		r := q.store.read(*s)
		f := &q.levels[p.level]
		q.take(f, s, len(r.body))
		if is != headReady {
			q.runHeadHooks(now, []pick{p}, hook.Verdict{})
			continue
		}
		q.reapDue(now) // what it was in front of does not remain if its time is up
		s = f.slot(p.seq)
		r = q.store.read(*s)
		fn(q.delivery(p, s, &r), q.ready)
		q.countDelivery(int(p.level), f, p.seq, s, c)
		q.endTurn(now)
		return true
	}
	return false
}

// deliver hands out ready messages, in order, while consumers want them. Every
// round hands out one at least, or has one leave, or finds a consumer that has no
// room: no message stays that somebody would take.
func (q *Queue) deliver(now hook.Instant) {
	q.buf.asked = q.buf.asked[:0] // of a turn that broke off
	for q.ready > 0 {
		g := q.consumers.serve()
		if g == nil {
			break
		}
		q.deliverBatch(now, g, g.next())
	}
	q.markAsked()
}

// headState is what a message that is next has before it.
type headState uint8

const (
	headReady   headState = iota // nothing: it may be handed out
	headOverdue                  // its time is up: its hooks decide
	headAsks                     // its hooks want to be asked when it is next
)

// nextMessage returns the message that is next, of which there must be one.
func (q *Queue) nextMessage(now hook.Instant) (p pick, s *slot, is headState) {
	l := q.topLevel()
	f := &q.levels[l]
	seq := f.peek()
	s = f.slot(seq)
	q.store.load(s.segment)
	p = pick{seq: seq, level: int32(l), back: seq < f.head}
	at := f.deadline(seq)
	switch {
	case at != 0 && now >= at && !(q.zeroTTL && seq >= f.firstOfTurn):
		return p, s, headOverdue
	case s.flags&askHead != 0:
		p.next = true
		return p, s, headAsks
	}
	return p, s, headReady
}

// deliverBatch gives a consumer whose turn it is the messages that are next, or puts
// them before their hooks.
func (q *Queue) deliverBatch(now hook.Instant, g *priorityGroup, c *Consumer) {
	w := q.buf
	picks, records := w.picks[:0], w.records[:0]
	for n := g.share(c); len(picks) < n && q.ready > 0; {
		p, s, is := q.nextMessage(now)
		if is != headReady {
			break // what is before it goes out first: it may not be next
		}
		r := q.store.read(*s)
		q.take(&q.levels[p.level], s, len(r.body))
		picks, records = append(picks, p), append(records, r)
	}
	w.picks, w.records = picks, records
	if len(picks) > 0 {
		q.send(g, c, picks, records)
		return
	}
	if _, _, is := q.nextMessage(now); is == headAsks {
		q.askHeads(now, g, c)
		return
	}
	q.askOverdue(now)
}

// askOverdue puts those that are next and whose time is up before their hooks.
func (q *Queue) askOverdue(now hook.Instant) {
	picks := q.buf.due[:0]
	for len(picks) < maxBatch && q.ready > 0 {
		p, s, is := q.nextMessage(now)
		if is != headOverdue {
			break
		}
		q.take(&q.levels[p.level], s, len(q.store.read(*s).body))
		picks = append(picks, p)
	}
	q.buf.due = picks
	q.runHeadHooks(now, picks, hook.Verdict{})
}

// askHeads puts messages that are next before their hooks, which want to be asked
// then: no more of them than the consumer will take in this turn.
func (q *Queue) askHeads(now hook.Instant, g *priorityGroup, c *Consumer) {
	most, bytes := c.Sink.Capacity(c)
	if most == 0 {
		c.stalled = true
		q.consumers.refresh(c)
		return
	}
	picks := q.buf.due[:0]
	for most = min(most, g.share(c)); len(picks) < most && bytes > 0 && q.ready > 0; {
		p, s, is := q.nextMessage(now)
		if is != headAsks {
			break
		}
		r := q.store.read(*s)
		q.take(&q.levels[p.level], s, len(r.body))
		picks = append(picks, p)
		bytes -= r.delivered()
	}
	q.buf.due = picks
	q.runHeadHooks(now, picks, hook.Verdict{})
}

// delivered is what a delivery of the record takes on a connection, at most.
func (r *record) delivered() int {
	const frames, perBody = 1024, 256 // the method with its strings, the header, and what each frame of the body begins and ends with
	return frames + len(r.props) + len(r.body) + len(r.body)/perBody
}

// markAsked ends what was asked about the messages that are next: whenever they
// are next again, because nobody took them or they came back, they are asked about
// again.
func (q *Queue) markAsked() {
	for _, p := range q.buf.asked {
		if _, _, s := q.find(p.ref()); s != nil && !s.is(stateFree) {
			s.flags |= askHead
		}
	}
	q.buf.asked = q.buf.asked[:0]
}

// send gives a consumer messages, as many of them as its sink has room for, and
// passes the turn on. The others are next again.
func (q *Queue) send(g *priorityGroup, c *Consumer, picks []pick, records []record) {
	ds := q.buf.delivery[:0]
	for i, p := range picks {
		ds = append(ds, q.delivery(p, q.levels[p.level].slot(p.seq), &records[i]))
	}
	q.buf.delivery = ds
	n := c.Sink.Deliver(c, ds)
	for _, p := range picks[:n] {
		f := &q.levels[p.level]
		q.countDelivery(int(p.level), f, p.seq, f.slot(p.seq), c)
	}
	if !c.NoAck {
		c.inflight += uint32(n)
	}
	if n < len(picks) {
		c.stalled = true
		q.takeBack(picks[n:], records[n:])
	}
	g.turn++
	q.consumers.refresh(c)
}

// takeBack makes picks ready again that no consumer has seen.
func (q *Queue) takeBack(picks []pick, records []record) {
	for i, p := range picks {
		f := &q.levels[p.level]
		if !p.back {
			f.rewind(p.seq)
		}
		q.untake(f, p.seq, f.slot(p.seq), len(records[i].body))
	}
}

// countDelivery counts a message that was handed out, and forgets it when no
// acknowledgement is due.
func (q *Queue) countDelivery(l int, f *fifo, seq uint64, s *slot, c *Consumer) {
	if s.flags&redelivered != 0 {
		q.count.Redelivered++
	}
	if c.NoAck {
		q.count.DeliveredNoAck++
		q.drop(l, f, seq, s)
		return
	}
	f.deliveredUpTo = max(f.deliveredUpTo, seq+1)
	q.count.Delivered++
}

func (q *Queue) delivery(p pick, s *slot, r *record) Delivery {
	d := Delivery{
		Ref: ref(int(p.level), p.seq), Exchange: r.exchange, Key: r.key,
		Props: r.props, Body: r.body, Enqueued: r.enqueued,
		Redelivered: s.flags&redelivered != 0, Traced: s.flags&traced != 0,
	}
	if len(d.Body) >= WorthHolding {
		d.Block = q.store.block(s.segment)
	}
	if n := s.returns(); n > 0 && q.cfg.Kind == Quorum {
		d.Props = withDeliveryCount(r.props, int64(n))
	}
	return d
}
