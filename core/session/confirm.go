package session

import (
	"errors"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/wlog"
)

var _ queue.Publisher = (*channel)(nil)

// confirmSelect turns on publisher confirms [RabbitMQ: confirms.html].
func (ch *channel) confirmSelect(m *amqp.ConfirmSelect) error {
	if ch.mode == transactional {
		return precondition("cannot switch from tx to confirm mode")
	}
	ch.setMode(confirming)
	return ch.answer(nil, m.NoWait, &amqp.ConfirmSelectOK{})
}

// trackConfirms adds the messages published since the last call to the confirm window. The caller hands them to their queues
// afterwards.
func (ch *channel) trackConfirms() {
	if len(ch.untracked) == 0 {
		return
	}
	o := ch.lock()
	defer o.mu.Unlock()
	if !ch.closed {
		if routed := ch.confirms.add(ch.untracked); !routed {
			o.pending = ch.confirms.settleAdded(o.pending, ch.id, len(ch.untracked))
			o.kick()
		}
	}
	ch.untracked = ch.untracked[:0]
}

// Confirmed implements [queue.Publisher].
func (ch *channel) Confirmed(b *queue.Batch) {
	o := ch.lock()
	defer o.mu.Unlock()
	if ch.closed {
		return
	}
	o.pending = ch.confirms.settle(o.pending, ch.id, b.Messages)
	o.kick()
}

// Failed implements [queue.Publisher]. The messages stay unconfirmed, and the next Tick closes the channel.
func (ch *channel) Failed(_ *queue.Batch, err error) {
	ch.failLater(errNotStored(ch.conn.vhost.Name(), err))
}

// failLater makes the next Tick close the channel, unless an error is already pending.
func (ch *channel) failLater(why *amqp.Error) {
	o := ch.lock()
	first := !ch.closed && ch.pendingError == nil
	if first {
		ch.pendingError = why
	}
	o.mu.Unlock()
	if first {
		ch.conn.wake()
	}
}

// errNotStored returns the error that closes a channel whose messages could not be stored. It is a soft error: the connection may still
// publish to other queues.
func errNotStored(vhost string, err error) *amqp.Error {
	const publishing = amqp.MethodBasicPublish
	if why, ok := errors.AsType[*queue.StoppedError](err); ok {
		return errStopped(why).In(amqp.ClassBasic, publishing)
	}
	if errors.Is(err, wlog.ErrNotOwner) {
		return errMoved("vhost '"+vhost+"' is not served by this node any more").In(amqp.ClassBasic, publishing)
	}
	e := amqp.Errorf(amqp.ReplyInternalError, "messages could not be stored, see the broker logfile")
	e.Soft = true
	return e.In(amqp.ClassBasic, publishing)
}

// confirmWindow holds the state of a channel's messages from the first unconfirmed one on.
type confirmWindow struct {
	states []confirmState // by sequence number; states[head] is the first in use
	head   int
	base   uint64 // sequence number before that of states[head]
}

// confirmState counts the queues that have not answered for a message. Its two highest bits are flags.
type confirmState uint32

const (
	refusedByQueue confirmState = 1 << 31 // a queue refused the message: the publisher gets basic.nack
	answered       confirmState = 1 << 30 // the publisher got its ack or nack
	outstanding                 = answered - 1
)

func (s confirmState) done() bool { return s&outstanding == 0 }

// add appends messages, given by the number of queues of each. routed is false if one of them has no queue.
func (w *confirmWindow) add(counts []uint32) (routed bool) {
	if w.head > len(w.states)/2 {
		w.states = w.states[:copy(w.states, w.states[w.head:])]
		w.head = 0
	}
	routed = true
	for _, n := range counts {
		routed = routed && n > 0
		w.states = append(w.states, confirmState(n))
	}
	return routed
}

// settle processes a queue's answers and appends the confirms that they complete.
func (w *confirmWindow) settle(dst []byte, channel uint16, ms []queue.Message) []byte {
	done := false
	for i := range ms {
		s := w.at(ms[i].Seq)
		*s--
		if ms[i].Flags&queue.Refused != 0 {
			*s |= refusedByQueue
		}
		done = done || s.done()
	}
	dst = w.advance(dst, channel)
	if !done || w.head == len(w.states) {
		return dst
	}
	for i := range ms {
		if ms[i].Seq > w.base {
			dst = w.answer(dst, channel, ms[i].Seq)
		}
	}
	return dst
}

// settleAdded confirms the messages among the last n that have no queue.
func (w *confirmWindow) settleAdded(dst []byte, channel uint16, n int) []byte {
	dst = w.advance(dst, channel)
	last := w.base + uint64(len(w.states)-w.head)
	for seq := max(last-uint64(n), w.base) + 1; seq <= last; seq++ {
		dst = w.answer(dst, channel, seq)
	}
	return dst
}

func (w *confirmWindow) at(seq uint64) *confirmState { return &w.states[w.head+int(seq-w.base-1)] }

// answer confirms a completed message out of order, while earlier ones are incomplete.
func (w *confirmWindow) answer(dst []byte, channel uint16, seq uint64) []byte {
	s := w.at(seq)
	if !s.done() || *s&answered != 0 {
		return dst
	}
	*s |= answered
	if *s&refusedByQueue != 0 {
		return amqp.AppendNack(dst, channel, seq, false, false)
	}
	return amqp.AppendAck(dst, channel, seq, false)
}

// advance removes the completed messages at the start and confirms runs of accepted ones together. A run ends before a refused message,
// because "multiple" must not cover it.
func (w *confirmWindow) advance(dst []byte, channel uint16) []byte {
	run, last := 0, uint64(0)
	for w.head < len(w.states) && w.states[w.head].done() {
		s := w.states[w.head]
		w.head++
		w.base++
		switch {
		case s&refusedByQueue != 0:
			dst = appendRun(dst, channel, run, last)
			run = 0
			if s&answered == 0 {
				dst = amqp.AppendNack(dst, channel, w.base, false, false)
			}
		case s&answered == 0:
			run, last = run+1, w.base
		}
	}
	if w.head == len(w.states) {
		w.states, w.head = w.states[:0], 0
	}
	return appendRun(dst, channel, run, last)
}

func appendRun(dst []byte, channel uint16, n int, last uint64) []byte {
	if n == 0 {
		return dst
	}
	return amqp.AppendAck(dst, channel, last, n > 1)
}
