package session

import (
	"errors"
	"iter"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// brokenDisk stores definitions and loses messages. It is a vhost's log of definitions and a queue's journal.
type brokenDisk struct{}

func (brokenDisk) Sync() error { return errors.New("input/output error") }

func (d brokenDisk) NewStorage() *queue.Storage { return &queue.Storage{Journal: d, ID: 1} }
func (brokenDisk) Write([]byte)                 {}
func (brokenDisk) NeedsCompaction() bool        { return false }
func (brokenDisk) Rewrite(iter.Seq[[]byte])     {}
func (brokenDisk) WaitDurable() error           { return nil }

func (brokenDisk) Extent() uint32                   { return 1 }
func (brokenDisk) Err() error                       { return nil }
func (brokenDisk) TryCommit([]byte) bool            { return true }
func (brokenDisk) Relocate([]byte, []journal.Delta) {}

func (brokenDisk) Commit(_ []byte, _ []journal.Delta, c journal.Completer) {
	if c != nil {
		c.Failed(errors.New("input/output error"))
	}
}

// newBrokenProbe is a client of a broker whose disk broke, with a durable queue "kept", one in memory, "passing", and
// channels 1 and 2.
func newBrokenProbe(t *testing.T) *probe {
	t.Helper()
	p := newProbe(t, func(o *Options) {
		v := vhost.New(vhost.Config{Name: "/", Chain: withPlugin(t, expirations{}), Clock: clock.New(), Log: discard(), DefinitionLog: brokenDisk{}})
		o.VHosts = func(string) (*vhost.VHost, bool) { return v, true }
	}).open().channel(1).channel(2)
	do[*amqp.QueueDeclareOK](p, 1, &amqp.QueueDeclare{Queue: "kept", Durable: true})
	do[*amqp.QueueDeclareOK](p, 1, &amqp.QueueDeclare{Queue: "passing"})
	return p
}

// kept returns a persistent message for a queue.
func kept(queue, body string) published {
	m := published{key: queue, props: amqp.Properties{DeliveryMode: 2}, body: body}
	m.props.Set(amqp.PropDeliveryMode)
	return m
}

func (p *probe) notStored(channel uint16) {
	p.t.Helper()
	m := p.closed(channel, amqp.ReplyInternalError, "INTERNAL_ERROR - messages could not be stored, see the broker logfile")
	if m.ClassID != amqp.ClassBasic || m.MethodID != amqp.MethodBasicPublish {
		p.t.Errorf("got %+v, want it to be about basic.publish", m)
	}
	p.silent()
}

// A publisher whose messages cannot be stored loses its channel, without a confirm; the connection and its other channels
// go on.
func TestNotStored(t *testing.T) {
	p := newBrokenProbe(t)
	woken := 0
	p.conn.out.tick = func() { woken++ }
	do[*amqp.ConfirmSelectOK](p, 1, &amqp.ConfirmSelect{})
	do[*amqp.ConfirmSelectOK](p, 2, &amqp.ConfirmSelect{})
	p.publish(1, kept("kept", "a"))
	p.publish(1, kept("kept", "b"))
	p.silent()
	if woken != 1 {
		t.Errorf("woken %d times, want once", woken)
	}
	p.conn.Tick(p.now)
	p.feed(nil)
	p.notStored(1)

	p.publish(2, kept("passing", "c"))
	if m := expect[*amqp.BasicAck](p, 2); m.DeliveryTag != 1 {
		t.Errorf("got %+v", m)
	}
	p.channel(1)
}

// A transaction that cannot be stored is not committed: the messages it acknowledged are requeued.
func TestTransactionNotStored(t *testing.T) {
	p := newBrokenProbe(t)
	p.publish(1, kept("passing", "cause"))
	do[*amqp.TxSelectOK](p, 2, &amqp.TxSelect{})
	p.send(2, &amqp.BasicGet{Queue: "passing"})
	m := expect[*amqp.BasicGetOK](p, 2)
	p.content(2)
	p.send(2, &amqp.BasicAck{DeliveryTag: m.DeliveryTag})
	p.publish(2, kept("kept", "effect"), kept("passing", "another effect"))
	p.send(2, &amqp.TxCommit{})
	p.notStored(2)
	p.holds(1, "passing", 2)
}

// The same holds if its acknowledgements cannot be stored.
func TestAcknowledgementNotStored(t *testing.T) {
	p := newBrokenProbe(t)
	p.publish(1, kept("kept", "in memory"))
	do[*amqp.TxSelectOK](p, 2, &amqp.TxSelect{})
	m := do[*amqp.BasicGetOK](p, 2, &amqp.BasicGet{Queue: "kept"})
	p.content(2)
	p.send(2, &amqp.BasicAck{DeliveryTag: m.DeliveryTag}, &amqp.TxCommit{})
	p.notStored(2)
}

// twoDisks is a log of definitions that gives each second queue a disk that is broken.
type twoDisks struct {
	brokenDisk
	queues *uint64
}

func (d twoDisks) NewStorage() *queue.Storage {
	if *d.queues++; *d.queues%2 == 0 {
		return d.brokenDisk.NewStorage()
	}
	return &queue.Storage{Journal: soundDisk{}, ID: *d.queues}
}

// soundDisk takes all.
type soundDisk struct{ brokenDisk }

func (soundDisk) Commit(_ []byte, _ []journal.Delta, c journal.Completer) {
	if c != nil {
		c.Durable()
	}
}

// If a transaction settles messages of two shards, of which one fails, those of the other are settled. They were given back once more when
// the channel was closed: while another consumer had one, or while it was dead-lettered.
func TestWhatWasSettledInOneShardIsNotGivenBack(t *testing.T) {
	p := newProbe(t, func(o *Options) {
		v := vhost.New(vhost.Config{
			Name: "/", Chain: withPlugin(t, expirations{}), Clock: clock.New(), Log: discard(), DefinitionLog: twoDisks{queues: new(uint64)},
		})
		o.VHosts = func(string) (*vhost.VHost, bool) { return v, true }
	}).open().channel(1).channel(2)
	do[*amqp.TxSelectOK](p, 2, &amqp.TxSelect{})
	for tag, name := range []string{"sound", "broken"} {
		do[*amqp.QueueDeclareOK](p, 1, &amqp.QueueDeclare{Queue: name, Durable: true})
		p.publish(1, kept(name, "m"))
		do[*amqp.BasicGetOK](p, 2, &amqp.BasicGet{Queue: name})
		p.content(2)
		p.send(2, &amqp.BasicNack{DeliveryTag: uint64(tag + 1), Requeue: true})
	}
	p.consume(1, "sound", "c")
	p.send(2, &amqp.TxCommit{})
	p.delivers(1, "c1:m*")
	p.notStored(2)
}

// If a transaction acknowledged messages of several queues, one of which had stopped, the messages of the others were unavailable until the
// broker was restarted.
func TestAcknowledgementsOfOtherQueuesAreRestored(t *testing.T) {
	p := newProbe(t).open().channel(1).channel(2)
	do[*amqp.TxSelectOK](p, 2, &amqp.TxSelect{})
	for tag, name := range []string{"one", "another"} {
		p.queue(1, name)
		p.publish(1, published{key: name, body: "m"})
		do[*amqp.BasicGetOK](p, 2, &amqp.BasicGet{Queue: name})
		p.content(2)
		p.send(2, &amqp.BasicAck{DeliveryTag: uint64(tag + 1)})
	}
	mailbox, err := p.conn.vhost.Queue("one", p.conn.id)
	if err != nil {
		t.Fatal(err)
	}
	_ = mailbox.Do(func(q *queue.Queue, _ hook.Instant) { q.End() })
	p.send(2, &amqp.TxCommit{})
	p.closed(2, amqp.ReplyInternalError, "INTERNAL_ERROR - queue 'one' in vhost '/' is stopped: the broker is shutting down, see the broker logfile")
	p.holds(1, "another", 1)
}

// When a transaction is committed after queues or bindings have changed, its messages to the default exchange are routed again. If the vhost
// had moved by then, they were dropped, and the client got tx.commit-ok.
func TestTransactionOfAMovedVHost(t *testing.T) {
	v := vhost.New(vhost.Config{Name: "/", Chain: withPlugin(t, expirations{}), Clock: clock.New(), Log: discard(), DefinitionLog: brokenDisk{}})
	p := newProbe(t, func(o *Options) { o.VHosts = func(string) (*vhost.VHost, bool) { return v, true } }).open().channel(1)
	do[*amqp.QueueDeclareOK](p, 1, &amqp.QueueDeclare{Queue: "kept", Durable: true})
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	p.publish(1, kept("kept", "m"))
	v.Move("moved")
	p.send(1, &amqp.TxCommit{})
	p.refused(amqp.ReplyConnectionForced, "CONNECTION_FORCED - vhost '/' is not served by this node any more")
}
