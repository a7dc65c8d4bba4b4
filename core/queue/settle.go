package queue

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// SettleKind is what a client, or the end of its channel, says about messages
// it was handed.
type SettleKind uint8

// The ways to settle.
const (
	Ack     SettleKind = iota
	Reject             // basic.reject or basic.nack with requeue=false
	Requeue            // back to where it was; not a failed delivery
	Return             // as Requeue, and it counts towards the delivery limit
)

// PendingAck is one message that was handed out, and to whom.
type PendingAck struct {
	Ref      Ref
	Consumer *Consumer
}

// settleAll carries out what was said about messages. One that is not handed out
// (any more) is passed over.
func (q *Queue) settleAll(now hook.Instant, kind SettleKind, items []PendingAck) {
	leaving, late := q.settle(now, kind, items)
	q.runHeadHooks(now, leaving, leavingBy(kind))
	q.runHeadHooks(now, late, hook.Verdict{})
	q.afterChange(now)
}

// settle is Settle but for what follows: it returns the messages that leave for
// the reason that kind is, and those that are past their deadline. The slices are
// valid until the queue does anything else.
func (q *Queue) settle(now hook.Instant, kind SettleKind, items []PendingAck) (leaving, late []pick) {
	leaving, late = q.buf.picks[:0], q.buf.due[:0]
	for _, it := range items {
		f, seq, s := q.find(it.Ref)
		if s == nil || !s.is(stateUnacked) {
			continue
		}
		q.returnCredit(it.Consumer)
		switch {
		case kind == Ack:
			q.count.Acked++
			q.drop(it.Ref.level(), f, seq, s)
		case kind == Reject || kind == Return && q.exhausted(s):
			leaving = append(leaving, pick{seq: seq, level: int32(it.Ref.level())})
		case q.late(now, f, seq):
			late = append(late, pick{seq: seq, level: int32(it.Ref.level())})
		default:
			q.requeue(now, it.Ref, f, seq, s)
		}
	}
	q.buf.picks, q.buf.due = leaving, late
	return leaving, late
}

// late reports whether a message that comes back is past its deadline in a
// queue that has no other occasion to notice.
func (q *Queue) late(now hook.Instant, f *fifo, seq uint64) bool {
	at := f.deadline(seq)
	return q.hooks.Scan == hook.ScanLazy && at != 0 && now >= at
}

func leavingBy(kind SettleKind) hook.Verdict {
	if kind == Reject {
		return hook.Verdict{Action: hook.Drop, Reason: hook.ReasonRejected}
	}
	return hook.Verdict{Action: hook.Drop, Reason: hook.ReasonDeliveryLimit}
}

// returnCredit gives a consumer its credit back.
func (q *Queue) returnCredit(c *Consumer) {
	if c == nil || c.inflight == 0 {
		return
	}
	c.inflight--
	if !c.active && !c.removed {
		q.consumers.refresh(c)
	}
}

// exhausted counts a failed delivery and reports whether it was one too many.
func (q *Queue) exhausted(s *slot) bool {
	n := s.returns()
	if n < 1<<16-1 {
		n++
		s.setReturns(n)
	}
	return q.cfg.DeliveryLimit >= 0 && q.cfg.Kind == Quorum && int64(n) > q.cfg.DeliveryLimit
}

// requeue puts a message back where it was, with the deadline it had unless the
// strategy renews it.
func (q *Queue) requeue(now hook.Instant, r Ref, f *fifo, seq uint64, s *slot) {
	q.count.Requeued++
	body := len(q.store.read(*s).body)
	s.flags |= redelivered
	f.requeue(seq, s)
	q.ready++
	q.unacked--
	q.readyBytes += int64(body)
	if s.flags&inHeap != 0 {
		q.stale--
	}
	l := r.level()
	at := f.deadline(seq)
	if q.hooks.WantsRequeue {
		var marked bool
		at, marked = q.renewed(now, pick{seq: seq, level: int32(l)}, s)
		q.journalDeadlineSet(r, f, seq, s, at, marked)
	}
	q.journalReturned(r, s)
	q.setDeadline(l, f, seq, s, at)
}

// renewed asks the strategy for the deadline of a message that came back, and
// gives it the mark that goes with it, which may be another.
func (q *Queue) renewed(now hook.Instant, p pick, s *slot) (at hook.Instant, marked bool) {
	w := q.buf
	views, vs := w.batch(1)
	w.leaving.records = append(w.leaving.records[:0], q.store.read(*s))
	w.leaving.picks, w.leaving.queue, w.leaving.now = []pick{p}, q, now
	views[0] = q.message(p, s, &w.leaving.records[0])
	views[0].Why = hook.WhyRequeue
	views[0].Bind(&w.leaving, 0)
	q.hooks.Requeue(now, views, vs)
	w.leaving.picks, w.leaving.queue = nil, nil
	q.heedAsk(p, s, &vs[0])
	return vs[0].Deadline, q.setStrategyData(&q.levels[p.level], p.seq, s, strategyDataOf(&vs[0]))
}

// Queue types.
const (
	Classic = "classic"
	Quorum  = "quorum"
)

// Type is a queue type as a number, to count by.
type Type uint8

// The types.
const (
	ClassicType Type = iota
	QuorumType
	Types
)

// TypeOf returns the number of a type that [Config] has.
func TypeOf(kind string) Type {
	if kind == Quorum {
		return QuorumType
	}
	return ClassicType
}

// withDeliveryCount returns the properties with x-delivery-count set, as a
// quorum queue's redeliveries carry it.
func withDeliveryCount(props []byte, n int64) []byte {
	x, err := amqp.ScanProps(props)
	if err != nil {
		return props
	}
	t, err := x.Headers(props).Decode()
	if err != nil {
		return props
	}
	const name = "x-delivery-count"
	kept := make(amqp.Table, 0, len(t)+1)
	for _, f := range t {
		if f.Key != name {
			kept = append(kept, f)
		}
	}
	kept = append(kept, amqp.Field{Key: name, Value: n})
	return amqp.RewriteProps(nil, props, x, amqp.PropEdit{Headers: amqp.RawTable(amqp.AppendTable(nil, kept)[4:])})
}

// public returns the flags as the rest of the broker knows them.
func (f slotFlags) public() Flags {
	var p Flags
	if f&persistent != 0 {
		p |= Persistent
	}
	if f&hasDeathHistory != 0 {
		p |= HasDeathHistory
	}
	if f&redelivered != 0 {
		p |= Redelivered
	}
	if f&traced != 0 {
		p |= Traced
	}
	return p
}
