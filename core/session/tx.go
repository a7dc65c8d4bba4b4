package session

import (
	"bytes"
	"errors"
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
)

// transaction is what a channel published and settled since the last commit [AMQP 1.9].
type transaction struct {
	messages   []pendingMessage
	settles    []pendingSettle
	size       int    // of the messages, bytes
	generation uint64 // of the vhost when the transaction began
}

// pendingMessage is a message that was routed, if only nowhere. Its bytes are its own.
type pendingMessage struct {
	queue.Message
	queues          []*queue.Mailbox
	mandatory       bool
	contextInjected bool // it was given its context
}

type pendingSettle struct {
	kind queue.SettleKind
	tagged
}

func (ch *channel) txSelect() error {
	if ch.mode == confirming {
		return precondition("cannot switch from confirm to tx mode")
	}
	if ch.mode != transactional { // else the transaction goes on
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
	// maxTransaction is how many of the largest messages a transaction may hold: it is memory that only its client can free.
	maxTransaction = 8
	// messageOverhead is what a message in a transaction costs besides its bytes, roughly.
	messageOverhead = 256
)

// txPublish adds the message at hand to the transaction. Its bytes are copied: the block they lie in is needed.
func (ch *channel) txPublish(m *queue.Message, shells []*queue.Mailbox) error {
	t := &ch.tx
	size := len(m.Props) + len(m.Body) + messageOverhead
	if limit := maxTransaction * ch.conn.srv.MessageMax; t.size+size > limit+messageOverhead {
		return precondition("transaction size %d is larger than the maximum of %d", t.size+size, limit)
	}
	t.size += size
	ch.conn.trackBuffered(size)
	p := pendingMessage{Message: *m, queues: slices.Clone(shells), mandatory: ch.content.mandatory, contextInjected: ch.contextInjected()}
	p.Props, p.Body = bytes.Clone(m.Props), bytes.Clone(m.Body)
	t.messages = append(t.messages, p)
	return nil
}

// address finds the queues of a transaction's messages as they are now, and gives back those that are mandatory and have none.
// As in RabbitMQ, the names of the queues are those that the messages were routed to when they were published.
func (ch *channel) address(t *transaction) {
	changed := ch.conn.vhost.Generation() != t.generation
	for i := range t.messages {
		p := &t.messages[i]
		if changed {
			p.queues = ch.successors(p.Routing, p.queues)
		}
		ch.counts.routed += uint64(len(p.queues))
		if len(p.queues) == 0 {
			ch.unroutable(&p.Message, p.mandatory)
		}
	}
	ch.counts.show(&ch.sharedCounts)
}

// successors returns the queues that have the names now that a message was routed to. To the default exchange every key is one.
func (ch *channel) successors(o *queue.RoutingInfo, shells []*queue.Mailbox) []*queue.Mailbox {
	switch c := ch.conn; {
	case isReply(o):
		return shells
	case o.Exchange == "":
		shells, _ = c.vhost.Route(o.Exchange, o.Key, nil, slices.Concat(o.CC, o.BCC), shells[:0]) // it was permitted
		return shells
	default:
		return c.vhost.Successors(shells)
	}
}

func (t *transaction) settle(kind queue.SettleKind, ts ...tagged) {
	for _, it := range ts {
		t.settles = append(t.settles, pendingSettle{kind, it})
	}
}

// txCommit carries out the transaction; all of it is durable when the client is told. What belongs to one shard is one entry
// of its log. What belongs to several is one in each for what was published and then, when that is durable, one in each for
// what was settled: a crash in between shows both cause and effect, but never neither. A queue that refuses a message does
// not undo what others accepted.
func (ch *channel) txCommit() error {
	if ch.mode != transactional {
		return errNotTransactional
	}
	t := ch.tx
	ch.begin()
	ch.address(&t)
	first, second := t.rounds()
	refused, err := queue.Transact(first)
	ch.conn.trackBuffered(-t.size)
	if err != nil {
		ch.tx.settles = t.settles // to be given back
		return errNotCommitted(err)
	}
	ch.traceCommitted(t.messages)
	if _, err := queue.Transact(second); err != nil {
		ch.tx.settles = t.settles // those that were settled are passed over
		return errNotCommitted(err)
	}
	ch.committed(t.settles)
	if refused {
		return precondition("partial tx completion")
	}
	ch.send(&amqp.TxCommitOK{})
	return nil
}

// committed makes room below the channel's limit for what was settled.
func (ch *channel) committed(ss []pendingSettle) {
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range ss {
		ch.returnCredit(ss[i].PendingAck)
	}
}

func errNotCommitted(err error) error {
	if errors.Is(err, queue.ErrTooLarge) {
		return precondition("%v", err)
	}
	return errNotStored(err)
}

// rounds divides the transaction into what is carried out first, and what after that.
func (t *transaction) rounds() (first, second []queue.Part) {
	var shells keyIndex[*queue.Mailbox]
	var parts []queue.Part
	part := func(s *queue.Mailbox) *queue.Part {
		i, added := shells.find(s)
		if added {
			parts = append(parts, queue.Part{Mailbox: s})
		}
		return &parts[i]
	}
	for i := range t.messages {
		for _, s := range t.messages[i].queues {
			p := part(s)
			if p.Batch == nil {
				p.Batch = queue.NewBatch()
			}
			p.Batch.Messages = append(p.Batch.Messages, t.messages[i].Message)
		}
	}
	for i := range t.settles {
		s := &t.settles[i]
		addTo(part(s.Consumer.Queue), s)
	}
	return divide(parts)
}

// addTo adds a settlement to those of its queue.
func addTo(p *queue.Part, s *pendingSettle) {
	i := slices.IndexFunc(p.Settlements, func(o queue.Settlement) bool { return o.Kind == s.kind })
	if i < 0 {
		i = len(p.Settlements)
		p.Settlements = append(p.Settlements, queue.Settlement{Kind: s.kind})
	}
	p.Settlements[i].Items = append(p.Settlements[i].Items, s.PendingAck)
}

// divide puts what is published first, and what is settled in the same shard if there is only one. Elsewhere it must not
// be settled before that is durable.
func divide(parts []queue.Part) (first, second []queue.Part) {
	shards := map[queue.Journal]struct{}{}
	for i := range parts {
		if r := parts[i].Mailbox.Config().Storage; r != nil {
			shards[r.Journal] = struct{}{}
		}
	}
	for _, p := range parts {
		if len(shards) == 1 && p.Mailbox.Config().Storage != nil {
			first = append(first, p)
			continue
		}
		if p.Batch != nil {
			first = append(first, queue.Part{Mailbox: p.Mailbox, Batch: p.Batch})
		}
		if len(p.Settlements) > 0 {
			second = append(second, queue.Part{Mailbox: p.Mailbox, Settlements: p.Settlements})
		}
	}
	return first, second
}

// txRollback forgets the messages; what was settled is unsettled again [AMQP 1.9.2.5].
func (ch *channel) txRollback() error {
	if ch.mode != transactional {
		return errNotTransactional
	}
	ch.restore(ch.abandon())
	ch.send(&amqp.TxRollbackOK{})
	return nil
}

// restore makes deliveries unsettled again.
func (ch *channel) restore(ts []tagged) {
	o := &ch.conn.out
	o.mu.Lock()
	defer o.mu.Unlock()
	ch.unacked.restore(ts)
}

// abandon ends the transaction and returns what was settled in it.
func (ch *channel) abandon() []tagged {
	ts := make([]tagged, len(ch.tx.settles))
	for i := range ch.tx.settles {
		ts[i] = ch.tx.settles[i].tagged
	}
	ch.conn.trackBuffered(-ch.tx.size)
	ch.begin()
	return ts
}
