package session

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// transaction is what a channel published and settled since the last commit [AMQP 1.9].
type transaction struct {
	messages []pendingPublish
	returns  []byte // frames that give mandatory messages back
	settles  []pendingSettle
	size     int // of the messages and returns, bytes
}

// pendingPublish is a message that was routed. Its bytes are its own.
type pendingPublish struct {
	queue.Publish
	shells []*queue.Shell
}

type pendingSettle struct {
	kind queue.SettleKind
	tagged
}

func (ch *channel) txSelect() error {
	if ch.mode == confirming {
		return precondition("cannot switch from confirm to tx mode")
	}
	ch.mode = transactional
	ch.send(&amqp.TxSelectOK{})
	return nil
}

var errNotTransactional = amqp.Errorf(amqp.ReplyPreconditionFailed, "channel is not transactional")

const (
	// maxTransaction is how many of the largest messages a transaction may hold: it is memory that only its client can free.
	maxTransaction = 8
	// messageOverhead is what a message in a transaction costs besides its bytes, roughly.
	messageOverhead = 256
)

// txPublish adds the message at hand to the transaction. Its bytes are copied: the block they lie in is needed.
func (ch *channel) txPublish(m *queue.Publish, shells []*queue.Shell) error {
	t := &ch.tx
	size := len(m.Props) + len(m.Body) + messageOverhead
	if limit := maxTransaction * ch.conn.srv.MessageMax; t.size+size > limit+messageOverhead {
		return precondition("transaction size %d is larger than the maximum of %d", t.size+size, limit)
	}
	t.size += size
	ch.conn.hoard(size)
	if len(shells) > 0 {
		p := pendingPublish{Publish: *m, shells: slices.Clone(shells)}
		p.Props, p.Body = bytes.Clone(m.Props), bytes.Clone(m.Body)
		t.messages = append(t.messages, p)
	} else if ch.content.mandatory {
		t.returns = appendReturn(t.returns, ch, m)
	}
	return nil
}

func (t *transaction) settle(kind queue.SettleKind, ts ...tagged) {
	for _, it := range ts {
		t.settles = append(t.settles, pendingSettle{kind, it})
	}
}

// txCommit carries out the transaction: what was published is stored before anything is settled, and all of it is durable
// when the client is told. A queue that refuses a message does not undo what others accepted.
func (ch *channel) txCommit() error {
	if ch.mode != transactional {
		return errNotTransactional
	}
	t := ch.tx
	ch.tx = transaction{}
	ch.conn.sendRaw(t.returns)
	accepted, stored := t.publish()
	ch.conn.hoard(-t.size)
	if !stored {
		ch.tx = transaction{settles: t.settles} // to be given back
		ch.giveUpStoring()
		return nil
	}
	for _, s := range t.settles {
		ch.conn.settling.addOne(s.kind, s.Settled)
	}
	ch.conn.flush()
	switch {
	case !t.settled():
		ch.giveUpStoring()
		return nil
	case !accepted:
		return precondition("partial tx completion")
	}
	ch.send(&amqp.TxCommitOK{})
	return nil
}

// syncer is a journal that can be waited for.
type syncer interface{ Sync() error }

// settled waits until what the transaction settled in durable queues is durable. It reports whether it is.
func (t *transaction) settled() bool {
	var shells places[*queue.Shell]
	var journals places[syncer]
	for i := range t.settles {
		shell := t.settles[i].Consumer.Queue
		if _, added := shells.find(shell); !added || shell.Config().Record == nil {
			continue
		}
		// When it returns the queue has seen to what was settled; an error means that it is gone, and everything with it.
		_ = shell.Do(func(*queue.Queue, hook.Instant) {})
		if j, ok := shell.Config().Record.Journal.(syncer); ok {
			journals.find(j)
		}
	}
	for _, j := range journals.keys {
		if j.Sync() != nil {
			return false
		}
	}
	return true
}

// publish sends the messages to their queues and waits until all have answered. It reports whether they took everything,
// and whether all of that is stored as it should be.
func (t *transaction) publish() (accepted, stored bool) {
	var box outbox
	for i := range t.messages {
		box.to(t.messages[i].shells, nil, &t.messages[i].Publish, &memory{})
	}
	var r receipt
	for _, b := range box.batches {
		b.Source = &r
	}
	r.open.Add(len(box.batches))
	box.flush()
	r.open.Wait()
	return !r.refused.Load(), !r.failed.Load()
}

// receipt waits for queues to take batches in.
type receipt struct {
	open    sync.WaitGroup
	refused atomic.Bool
	failed  atomic.Bool
}

var _ queue.Source = (*receipt)(nil)

// Settled implements [queue.Source].
func (r *receipt) Settled(b *queue.Batch) {
	for i := range b.Messages {
		if b.Messages[i].Flags&queue.Refused != 0 {
			r.refused.Store(true)
		}
	}
	r.open.Done()
}

// Failed implements [queue.Source].
func (r *receipt) Failed(*queue.Batch, error) {
	r.failed.Store(true)
	r.open.Done()
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
	for i := range ts {
		if ts[i].Consumer.Sink != nil {
			ch.charged++
		}
	}
}

// abandon ends the transaction and returns what was settled in it.
func (ch *channel) abandon() []tagged {
	ts := make([]tagged, len(ch.tx.settles))
	for i := range ch.tx.settles {
		ts[i] = ch.tx.settles[i].tagged
	}
	ch.conn.hoard(-ch.tx.size)
	ch.tx = transaction{}
	return ts
}
