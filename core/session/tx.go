package session

import (
	"bytes"
	"errors"
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
)

// transaction is a channel's part with the messages and settlements since the last commit
// [AMQP 1.9]. It belongs to the connection's reader.
type transaction struct {
	out   *outlet
	vhost *vhost.VHost
	on    bool // the channel is transactional; written under out's lock

	pending
}

// pending is the messages and settlements that a commit carries out.
type pending struct {
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

func (t *transaction) init(out *outlet, v *vhost.VHost) { t.out, t.vhost = out, v }

// isOn reports whether the channel is transactional.
func (t *transaction) isOn() bool { return t.on }

func (t *transaction) turnOn() {
	o := t.out.lock()
	t.on = true
	o.mu.Unlock()
	t.begin()
}

// begin begins a transaction, and returns the messages and settlements of the previous one.
func (t *transaction) begin() pending {
	p := t.pending
	t.pending = pending{generation: t.vhost.Generation()}
	return p
}

func (ch *channel) txSelect() error {
	if ch.publisher.confirms.isOn() {
		return precondition("cannot switch from confirm to tx mode")
	}
	if !ch.tx.isOn() { // otherwise the transaction goes on
		ch.tx.turnOn()
	}
	ch.outlet.send(&amqp.TxSelectOK{})
	return nil
}

var errNotTransactional = amqp.Errorf(amqp.ReplyPreconditionFailed, "channel is not transactional")

const (
	// maxTransaction bounds a transaction, in messages of the largest size: the broker
	// cannot free its memory, only the client can.
	maxTransaction = 8
	// messageOverhead is roughly the memory that a message in a transaction takes besides
	// its bytes.
	messageOverhead = 256
	// copyOverhead is roughly the memory that each further queue of a message takes when
	// the transaction is committed, or each further key until then. On the default exchange
	// the keys may be the names of queues by then.
	copyOverhead = 128
)

// add adds a message, and returns how many bytes it takes; a transaction may have limit
// bytes. add copies props and body, because their block is reused.
func (t *transaction) add(m *queue.Message, queues []*queue.Mailbox, mandatory, contextInjected bool, limit int) (size int, err error) {
	size = len(m.Props) + len(m.Body) + messageOverhead + max(len(queues)-1, len(m.Routing.CC)+len(m.Routing.BCC))*copyOverhead
	if t.size+size > limit+messageOverhead {
		return 0, precondition("transaction size %d is larger than the maximum of %d", t.size+size, limit)
	}
	t.size += size
	p := pendingMessage{Message: *m, queues: slices.Clone(queues), mandatory: mandatory, contextInjected: contextInjected}
	p.Props, p.Body = bytes.Clone(m.Props), bytes.Clone(m.Body)
	t.messages = append(t.messages, p)
	return size, nil
}

// updateQueues replaces the queues of the messages by the queues that now have the same
// names, as RabbitMQ does. After an error nothing was done.
func (t *pending) updateQueues(v *vhost.VHost) error {
	if v.Generation() == t.generation {
		return nil
	}
	for i := range t.messages {
		p := &t.messages[i]
		queues, err := successors(v, p.Routing, p.queues)
		if err != nil {
			return err
		}
		p.queues = queues
	}
	return nil
}

// successors returns the queues that now have the names of the queues a message was routed
// to. On the default exchange, the names are the routing keys, whether or not such a queue
// existed.
func successors(v *vhost.VHost, o *queue.RoutingInfo, queues []*queue.Mailbox) ([]*queue.Mailbox, error) {
	switch {
	case isReply(o):
		return queues, nil
	case o.Exchange == "":
		m := &parts.Message{Key: o.Key, More: slices.Concat(o.CC, o.BCC)}
		queues, _, err := v.Route(o.Exchange, m, queues[:0]) // permission was checked when the message was published
		return queues, err
	default:
		return v.Successors(queues), nil
	}
}

func (t *pending) settle(kind queue.SettleKind, acks ...taggedAck) {
	for _, a := range acks {
		t.settles = append(t.settles, pendingSettle{kind, a})
	}
}

// find returns the settlement of a delivery; nil = there is none.
func (t *pending) find(tag uint64) *pendingSettle {
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
func (t *pending) takeSettle(tag uint64, dst []taggedAck) []taggedAck {
	s := t.find(tag)
	if s == nil {
		return dst
	}
	dst = append(dst, s.taggedAck)
	s.PendingAck, t.ended = queue.PendingAck{}, true
	return dst
}

// removeEnded removes the void settlements.
func (t *pending) removeEnded() {
	if t.ended {
		t.settles = slices.DeleteFunc(t.settles, func(s pendingSettle) bool { return s.Consumer == nil })
		t.byTag, t.indexed, t.ended = nil, 0, false
	}
}

// holds reports whether there are settlements.
func (t *pending) holds() bool { return len(t.settles) > 0 }

// settlements returns how many deliveries are settled.
func (t *pending) settlements() int { return len(t.settles) }

// giveBack puts settlements that were not carried out into the next transaction.
func (t *pending) giveBack(settles []pendingSettle) { t.settles = settles }

// txCommit commits the transaction, and answers when all of it is durable. If the whole
// transaction is in one shard, it is one entry of the shard's log. Otherwise each shard
// gets an entry with its messages and, once all messages are durable, an entry with its
// settlements. After a crash between the two, a delivery and the messages published because
// of it may both exist, but never neither. A queue that refuses a message does not undo
// messages that other queues accepted.
func (ch *channel) txCommit() error {
	if !ch.tx.isOn() {
		return errNotTransactional
	}
	ch.tx.removeEnded()
	t, v := ch.tx.begin(), ch.conn.vhost
	if err := t.updateQueues(v); err != nil {
		ch.conn.round.buffer(-t.size)
		ch.tx.giveBack(t.settles)
		return err
	}
	ch.publisher.committing(t.messages)
	first, second := t.rounds()
	refused, err := queue.Transact(first)
	ch.conn.round.buffer(-t.size)
	if err != nil {
		ch.tx.giveBack(t.unsettled(first))
		return errNotCommitted(v.Name(), err)
	}
	ch.publisher.committed(t.messages)
	if _, err := queue.Transact(second); err != nil {
		ch.tx.giveBack(t.unsettled(first, second))
		return errNotCommitted(v.Name(), err)
	}
	ch.deliveries.unsettled.committed(t.settles)
	if refused {
		return precondition("partial tx completion")
	}
	ch.outlet.send(&amqp.TxCommitOK{})
	return nil
}

// unsettled returns the settlements that no queue has carried out: their deliveries are
// given back. A message whose delivery is settled may be with another consumer by now, or
// on its way to a dead-letter exchange.
func (t *pending) unsettled(rounds ...[]queue.Part) []pendingSettle {
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
func (t *pending) rounds() (first, second []queue.Part) {
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

// divide puts messages into the first round. Settlements join them if all are in a single
// shard; otherwise nothing may be settled before the messages are durable.
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
	if !ch.tx.isOn() {
		return errNotTransactional
	}
	ch.deliveries.unsettled.restore(ch.abandon())
	ch.outlet.send(&amqp.TxRollbackOK{})
	return nil
}

// abandon ends the transaction and returns the deliveries that it had settled.
func (ch *channel) abandon() []taggedAck {
	ch.tx.removeEnded()
	t := ch.tx.begin()
	acks := make([]taggedAck, len(t.settles))
	for i := range t.settles {
		acks[i] = t.settles[i].taggedAck
	}
	ch.conn.round.buffer(-t.size)
	return acks
}
