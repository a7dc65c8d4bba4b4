package session

import (
	"bytes"
	"errors"
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
)

// transaction holds the messages and settlements of a channel since its last commit [AMQP 1.9].
type transaction struct {
	messages   []pendingMessage
	settles    []pendingSettle
	size       int    // of the messages, bytes
	generation uint64 // of the vhost's topology when the transaction began

	byTag   map[uint64]int // positions of the first indexed settles, by tag; nil until a lease ends
	indexed int
	ended   bool // some settles are void and have no consumer, because the lease of their delivery has ended
}

// pendingMessage is a copy of a message, with the queues that it was routed to, if any.
type pendingMessage struct {
	queue.Message
	queues          []*queue.Mailbox
	mandatory       bool
	contextInjected bool
	lost            bool // a cancellation that found nothing to cancel
}

type pendingSettle struct {
	kind queue.SettleKind
	taggedAck
}

func (ch *channel) txSelect() error {
	if ch.mode == confirming {
		return precondition("cannot switch from confirm to tx mode")
	}
	if ch.mode != transactional { // otherwise the transaction goes on
		ch.setMode(transactional)
		ch.begin()
	}
	ch.send(&amqp.TxSelectOK{})
	return nil
}

// begin begins a transaction.
func (ch *channel) begin() { ch.tx = transaction{generation: ch.conn.vhost.Generation()} }

var errNotTransactional = amqp.Errorf(amqp.ReplyPreconditionFailed, "channel is not transactional")

const (
	// maxTransaction bounds a transaction, in messages of the largest size: the broker cannot free its memory, only the client can.
	maxTransaction = 8
	// messageOverhead is roughly the memory that a message in a transaction takes besides its bytes.
	messageOverhead = 256
	// copyOverhead is roughly the memory that each further queue of a message takes when the transaction is committed, or each further key
	// until then. On the default exchange the keys may be the names of queues by then.
	copyOverhead = 128
)

// txPublish adds the current message to the transaction. It copies the bytes, because their block is reused.
func (ch *channel) txPublish(m *queue.Message, queues []*queue.Mailbox) error {
	t := &ch.tx
	size := len(m.Props) + len(m.Body) + messageOverhead + max(len(queues)-1, len(m.Routing.CC)+len(m.Routing.BCC))*copyOverhead
	if limit := maxTransaction * ch.conn.srv.MessageMax; t.size+size > limit+messageOverhead {
		return precondition("transaction size %d is larger than the maximum of %d", t.size+size, limit)
	}
	t.size += size
	ch.conn.trackBuffered(size)
	p := pendingMessage{Message: *m, queues: slices.Clone(queues), mandatory: ch.content.mandatory, contextInjected: ch.contextInjected()}
	p.Props, p.Body = bytes.Clone(m.Props), bytes.Clone(m.Body)
	t.messages = append(t.messages, p)
	return nil
}

// updateQueues replaces the queues of a transaction's messages by the queues that now have the same names, as RabbitMQ does. It returns
// mandatory messages without a queue to the client. After an error nothing was done.
func (ch *channel) updateQueues(t *transaction) error {
	if ch.conn.vhost.Generation() != t.generation {
		for i := range t.messages {
			p := &t.messages[i]
			queues, err := ch.successors(p.Routing, p.queues)
			if err != nil {
				return err
			}
			p.queues = queues
		}
	}
	for i := range t.messages {
		p := &t.messages[i]
		routed := leads(&p.Message, p.queues)
		ch.counts.routed += uint64(routed)
		if routed == 0 {
			ch.unroutable(&p.Message, p.mandatory)
		}
	}
	ch.counts.share(&ch.sharedCounts)
	return nil
}

// successors returns the queues that now have the names of the queues a message was routed to. On the default exchange, the names are
// the routing keys, whether or not such a queue existed.
func (ch *channel) successors(o *queue.RoutingInfo, queues []*queue.Mailbox) ([]*queue.Mailbox, error) {
	switch c := ch.conn; {
	case isReply(o):
		return queues, nil
	case o.Exchange == "":
		m := &parts.Message{Key: o.Key, More: slices.Concat(o.CC, o.BCC)}
		queues, _, err := c.vhost.Route(o.Exchange, m, queues[:0]) // permission was checked when the message was published
		return queues, err
	default:
		return c.vhost.Successors(queues), nil
	}
}

func (t *transaction) settle(kind queue.SettleKind, acks ...taggedAck) {
	for _, a := range acks {
		t.settles = append(t.settles, pendingSettle{kind, a})
	}
}

// find returns the settlement of a delivery; nil = there is none.
func (t *transaction) find(tag uint64) *pendingSettle {
	if len(t.settles) == 0 {
		return nil
	}
	if t.byTag == nil {
		t.byTag = map[uint64]int{}
	}
	for ; t.indexed < len(t.settles); t.indexed++ {
		t.byTag[t.settles[t.indexed].tag] = t.indexed
	}
	if i, ok := t.byTag[tag]; ok && t.settles[i].Consumer != nil {
		return &t.settles[i]
	}
	return nil
}

// takeSettle voids the settlement of a delivery, if there is one, and appends the delivery to dst.
func (t *transaction) takeSettle(tag uint64, dst []taggedAck) []taggedAck {
	s := t.find(tag)
	if s == nil {
		return dst
	}
	dst = append(dst, s.taggedAck)
	s.PendingAck, t.ended = queue.PendingAck{}, true
	return dst
}

// removeEnded removes the void settlements.
func (t *transaction) removeEnded() {
	if t.ended {
		t.settles = slices.DeleteFunc(t.settles, func(s pendingSettle) bool { return s.Consumer == nil })
		t.byTag, t.indexed, t.ended = nil, 0, false
	}
}

// txCommit commits the transaction, and answers when all of it is durable. If the whole transaction is in one shard, it is one entry of the
// shard's log. Otherwise each shard gets an entry with its messages and, once all messages are durable, an entry with its settlements. After
// a crash between the two, a delivery and the messages published because of it may both exist, but never neither. A queue that refuses a message does
// not undo messages that other queues accepted.
func (ch *channel) txCommit() error {
	if ch.mode != transactional {
		return errNotTransactional
	}
	ch.tx.removeEnded()
	t := ch.tx
	ch.begin()
	if err := ch.updateQueues(&t); err != nil {
		ch.conn.trackBuffered(-t.size)
		ch.tx.settles = t.settles
		return err
	}
	first, second := t.rounds()
	refused, err := queue.Transact(first)
	ch.conn.trackBuffered(-t.size)
	if err != nil {
		ch.tx.settles = t.unsettled(first)
		return errNotCommitted(ch.conn.vhost.Name(), err)
	}
	ch.returnLost(t.messages)
	ch.traceCommitted(t.messages)
	if _, err := queue.Transact(second); err != nil {
		ch.tx.settles = t.unsettled(first, second)
		return errNotCommitted(ch.conn.vhost.Name(), err)
	}
	o := ch.lock()
	for i := range t.settles {
		ch.returnCredit(t.settles[i].PendingAck)
	}
	o.mu.Unlock()
	if refused {
		return precondition("partial tx completion")
	}
	ch.send(&amqp.TxCommitOK{})
	return nil
}

// unsettled returns the settlements that no queue has carried out: their deliveries are given back. A message whose delivery is settled
// may be with another consumer by now, or on its way to a dead-letter exchange.
func (t *transaction) unsettled(rounds ...[]queue.Part) []pendingSettle {
	settled := map[*queue.Mailbox]bool{}
	for _, parts := range rounds {
		for i := range parts {
			settled[parts[i].Mailbox] = settled[parts[i].Mailbox] || parts[i].Settled
		}
	}
	return slices.DeleteFunc(t.settles, func(s pendingSettle) bool { return settled[s.Consumer.Queue] })
}

func errNotCommitted(vhost string, err error) error {
	if errors.Is(err, queue.ErrTooLarge) {
		return precondition("%v", err)
	}
	return errNotStored(vhost, err)
}

// rounds divides the transaction into the parts to commit first, and the parts to commit once the first are durable.
func (t *transaction) rounds() (first, second []queue.Part) {
	var index keyIndex[*queue.Mailbox]
	var parts []queue.Part
	of := func(q *queue.Mailbox) *queue.Part {
		i, added := index.find(q)
		if added {
			parts = append(parts, queue.Part{Mailbox: q})
		}
		return &parts[i]
	}
	for i := range t.messages {
		for _, q := range t.messages[i].queues {
			p := of(q)
			if p.Batch == nil {
				p.Batch = queue.NewBatch()
			}
			m := t.messages[i].Message
			if m.Flags&queue.Mandatory != 0 {
				m.Seq = uint64(i + 1)
				p.Lost = func(seq uint64) { t.messages[seq-1].lost = true }
			}
			p.Batch.Messages = append(p.Batch.Messages, m)
		}
	}
	for i := range t.settles {
		s := &t.settles[i]
		addSettlement(of(s.Consumer.Queue), s)
	}
	return divide(parts)
}

func addSettlement(p *queue.Part, s *pendingSettle) {
	i := slices.IndexFunc(p.Settlements, func(o queue.Settlement) bool { return o.Kind == s.kind })
	if i < 0 {
		i = len(p.Settlements)
		p.Settlements = append(p.Settlements, queue.Settlement{Kind: s.kind})
	}
	p.Settlements[i].Items = append(p.Settlements[i].Items, s.PendingAck)
}

// divide puts messages into the first round. Settlements join them if all are in a single shard; otherwise nothing may be settled before the
// messages are durable.
func divide(parts []queue.Part) (first, second []queue.Part) {
	shards := map[queue.Journal]struct{}{}
	for i := range parts {
		if s := parts[i].Mailbox.Config().Storage; s != nil {
			shards[s.Journal] = struct{}{}
		}
	}
	for _, p := range parts {
		if len(shards) == 1 && p.Mailbox.Config().Storage != nil {
			first = append(first, p)
			continue
		}
		if p.Batch != nil {
			first = append(first, queue.Part{Mailbox: p.Mailbox, Batch: p.Batch, Lost: p.Lost})
		}
		if len(p.Settlements) > 0 {
			second = append(second, queue.Part{Mailbox: p.Mailbox, Settlements: p.Settlements})
		}
	}
	return first, second
}

// txRollback drops the messages and makes the settled deliveries unacknowledged again [AMQP 1.9.2.5].
func (ch *channel) txRollback() error {
	if ch.mode != transactional {
		return errNotTransactional
	}
	acks := ch.abandon()
	o := ch.lock()
	ch.unacked.restore(acks)
	o.mu.Unlock()
	ch.send(&amqp.TxRollbackOK{})
	return nil
}

// abandon ends the transaction and returns the deliveries that it had settled.
func (ch *channel) abandon() []taggedAck {
	ch.tx.removeEnded()
	acks := make([]taggedAck, len(ch.tx.settles))
	for i := range ch.tx.settles {
		acks[i] = ch.tx.settles[i].taggedAck
	}
	ch.conn.trackBuffered(-ch.tx.size)
	ch.begin()
	return acks
}
