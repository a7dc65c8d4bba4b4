package session

import (
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

func (p *probe) commit(channel uint16) {
	p.t.Helper()
	do[*amqp.TxCommitOK](p, channel, &amqp.TxCommit{})
}

func (p *probe) rollback(channel uint16) {
	p.t.Helper()
	do[*amqp.TxRollbackOK](p, channel, &amqp.TxRollback{})
}

func TestTransaction(t *testing.T) {
	p := newProbe(t).open().channel(1).channel(2)
	p.queue(1, "q")
	p.queue(1, "r")
	p.publish(1, bodies("q", "0", "1", "2")...)
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	p.consume(1, "q", "c")
	p.delivers(1, "c1:0 c2:1 c3:2")

	p.publish(1, bodies("r", "a", "b")...)
	p.publish(1, published{key: "nowhere", body: "back", mandatory: true})
	p.send(1, &amqp.BasicAck{DeliveryTag: 1})
	p.send(1, &amqp.BasicNack{DeliveryTag: 2, Requeue: true})
	p.silent()
	p.holds(2, "r", 0)
	p.rollback(1)
	p.commit(1)
	p.holds(2, "r", 0)

	p.publish(1, bodies("r", "a", "b")...)
	p.publish(1, published{key: "nowhere", body: "back", mandatory: true})
	p.send(1, &amqp.BasicNack{DeliveryTag: 2, Requeue: true}) // the rolled back acknowledgement has no effect
	p.send(1, &amqp.BasicAck{DeliveryTag: 1})
	p.silent()
	p.send(1, &amqp.TxCommit{})
	expect[*amqp.BasicReturn](p, 1)
	if _, body := p.content(1); body != "back" {
		t.Errorf("returned: got %q", body)
	}
	p.delivers(1, "c4:1*")
	expect[*amqp.TxCommitOK](p, 1)
	for _, want := range []string{"a", "b"} {
		if _, _, body := p.got(2, "r"); body != want {
			t.Errorf("got %s, want %s", body, want)
		}
	}
	p.send(1, &amqp.BasicAck{DeliveryTag: 1})
	p.closed(1, 406, "PRECONDITION_FAILED - unknown delivery tag 1")
	p.holds(2, "q", 2)
}

// A message that a queue refuses does not prevent others from being accepted, and the client gets an error.
func TestPartialTransaction(t *testing.T) {
	p := newProbe(t, withPicky(t)).open().channel(1).channel(2)
	p.queue(1, "picky", "x-picky", true)
	p.queue(1, "q")
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	p.publish(1, published{key: "picky", body: "yes"}, published{key: "picky", body: "no"}, published{key: "q", body: "a"})
	p.send(1, &amqp.TxCommit{})
	p.closed(1, 406, "PRECONDITION_FAILED - partial tx completion")
	p.holds(2, "picky", 1)
	p.holds(2, "q", 1)
}

// The memory of a transaction is counted and bounded.
func TestTransactionSize(t *testing.T) {
	p := newProbe(t, func(o *Options) { o.MessageMax = 10_000 }).open().channel(1)
	s := p.conn.srv
	p.queue(1, "q")
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	m := published{key: "q", body: strings.Repeat("x", 10_000)}
	for range 7 {
		p.publish(1, m)
	}
	if got := s.PendingBytes(); got < 70_000 {
		t.Errorf("%d bytes count", got)
	}
	p.commit(1)
	if got := s.PendingBytes(); got > 1000 {
		t.Errorf("after the commit %d bytes count", got)
	}
	for range 7 {
		p.publish(1, m)
	}
	p.rollback(1)
	if got := s.PendingBytes(); got > 1000 {
		t.Errorf("after the rollback %d bytes count", got)
	}
	for range 8 {
		p.publish(1, m)
	}
	p.closed(1, 406, "PRECONDITION_FAILED - transaction size 82064 is larger than the maximum of 80000")
	if got := s.PendingBytes(); got > 1000 {
		t.Errorf("after the refusal %d bytes count", got)
	}
	p.channel(1)
	p.holds(1, "q", 7)
}

// A message takes memory for each queue that it goes to: a transaction of millions of copies ended the broker when it was committed.
func TestTransactionSizeOfCopies(t *testing.T) {
	const queues = 100
	p := newProbe(t, func(o *Options) { o.MessageMax = 10_000 }).open().channel(1)
	for i := range queues {
		p.queue(1, strconv.Itoa(i))
		do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: strconv.Itoa(i), Exchange: "amq.fanout"})
	}
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	m := published{exchange: "amq.fanout", body: "x"}
	for range 5 {
		p.publish(1, m)
	}
	if got := p.conn.srv.PendingBytes(); got < 5*queues*100 {
		t.Errorf("%d bytes count", got)
	}
	p.commit(1)
	for range 7 {
		p.publish(1, m)
	}
	p.closed(1, 406, "PRECONDITION_FAILED - transaction size 90517 is larger than the maximum of 80000")
	if got := p.conn.srv.PendingBytes(); got > 1000 {
		t.Errorf("after the refusal %d bytes count", got)
	}
	p.channel(1)
	p.holds(1, "7", 5)
}

// Acknowledgements in a transaction returned credit to the channel before the commit. After a rollback the channel had more deliveries
// than its global prefetch.
func TestTransactionsAndLimit(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "q")
	do[*amqp.BasicQosOK](p, 1, &amqp.BasicQos{PrefetchCount: 1, Global: true})
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	p.consume(1, "q", "c")
	p.publish(1, bodies("q", "1", "2", "3")...)
	p.send(1, &amqp.TxCommit{})
	p.delivers(1, "c1:1")
	expect[*amqp.TxCommitOK](p, 1)
	p.send(1, &amqp.BasicAck{DeliveryTag: 1})
	p.silent()
	p.rollback(1)
	p.silent()
	p.send(1, &amqp.BasicAck{DeliveryTag: 1})
	p.silent()
	p.commit(1)
	p.delivers(1, "c2:2")
	p.send(1, &amqp.BasicNack{DeliveryTag: 2, Multiple: true})
	p.silent()
	p.commit(1)
	p.delivers(1, "c3:3")
}

// At commit, a transaction's messages go to the queues that then have the names to which they were routed when they were published. A
// mandatory message without a queue is returned before commit-ok, as in RabbitMQ. Messages whose queue was deleted used to be lost silently.
func TestRoutedAtCommit(t *testing.T) {
	tests := []struct {
		name         string
		before       []amqp.Method // before the message is published
		exchange     string
		after        []amqp.Method // between the publish and the commit
		returned     bool
		left, routed int // in q in the end
	}{
		{name: "nothing happens", before: []amqp.Method{declare("q")}, left: 1, routed: 1},
		{name: "the queue is deleted", before: []amqp.Method{declare("q")}, after: []amqp.Method{remove("q")}, returned: true},
		{name: "the queue is declared", after: []amqp.Method{declare("q")}, left: 1, routed: 1},
		{name: "the queue is another", before: []amqp.Method{declare("q")}, after: []amqp.Method{remove("q"), declare("q")}, left: 1, routed: 1},
		{name: "the bound queue is deleted", before: []amqp.Method{declare("q"), bind("q")}, exchange: "amq.fanout", after: []amqp.Method{remove("q")}, returned: true},
		{
			name: "the bound queue is another", before: []amqp.Method{declare("q"), bind("q")}, exchange: "amq.fanout",
			after: []amqp.Method{remove("q"), declare("q")}, left: 1, routed: 1,
		},
		{name: "it is bound later", before: []amqp.Method{declare("q")}, exchange: "amq.fanout", after: []amqp.Method{bind("q")}, returned: true},
		{
			name: "it is unbound", before: []amqp.Method{declare("q"), bind("q")}, exchange: "amq.fanout",
			after: []amqp.Method{&amqp.QueueUnbind{Queue: "q", Exchange: "amq.fanout"}}, left: 1, routed: 1,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newProbe(t).open().channel(1).channel(2)
			do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
			p.run(2, tt.before...)
			p.publish(1, published{exchange: tt.exchange, key: "q", body: "m", mandatory: true})
			p.run(2, tt.after...)
			p.silent()
			p.send(1, &amqp.TxCommit{})
			if tt.returned {
				m := expect[*amqp.BasicReturn](p, 1)
				if _, body := p.content(1); body != "m" || m.ReplyCode != amqp.ReplyNoRoute || m.Exchange != tt.exchange || m.RoutingKey != "q" {
					t.Errorf("returned: got %+v %q", m, body)
				}
			}
			expect[*amqp.TxCommitOK](p, 1)
			got := p.conn.Channels()[0].Counters
			if got.Published != 1 || got.Routed != uint64(tt.routed) || got.Returned != uint64(1-tt.routed) {
				t.Errorf("counted: got %+v", got)
			}
			p.run(2, declare("q"))
			p.holds(2, "q", uint32(tt.left))
		})
	}
}

func declare(name string) amqp.Method { return &amqp.QueueDeclare{Queue: name} }
func remove(name string) amqp.Method  { return &amqp.QueueDelete{Queue: name} }
func bind(name string) amqp.Method    { return &amqp.QueueBind{Queue: name, Exchange: "amq.fanout"} }

// run sends methods and expects their answers.
func (p *probe) run(channel uint16, ms ...amqp.Method) {
	p.t.Helper()
	for _, m := range ms {
		p.send(channel, m)
		if _, answer := p.method(); answer == nil || strings.HasSuffix(answer.Name(), "close") {
			p.t.Fatalf("%s: got %+v", m.Name(), answer)
		}
	}
}

// A second tx.select continues the open transaction. It used to drop the transaction, together with the acknowledgements in it.
func TestSecondSelect(t *testing.T) {
	p := newProbe(t).open().channel(1).channel(2)
	p.queue(2, "q")
	p.publish(2, bodies("q", "held")...)
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	p.send(1, &amqp.BasicGet{Queue: "q"})
	expect[*amqp.BasicGetOK](p, 1)
	p.content(1)
	p.send(1, &amqp.BasicAck{DeliveryTag: 1})
	p.publish(1, bodies("q", "1", "2")...)
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	p.publish(1, bodies("q", "3")...)
	p.commit(1)
	p.holds(2, "q", 3)
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	p.send(1, &amqp.BasicGet{Queue: "q"})
	expect[*amqp.BasicGetOK](p, 1)
	p.content(1)
	p.send(1, &amqp.BasicAck{DeliveryTag: 2})
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	do[*amqp.ChannelCloseOK](p, 1, &amqp.ChannelClose{})
	p.holds(2, "q", 3)
}

// basic.recover returns credit at once, even in a transaction, because it is not part of it. The channel used to get no more deliveries.
func TestRecoverInATransaction(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "q")
	p.publish(1, bodies("q", "1", "2")...)
	do[*amqp.BasicQosOK](p, 1, &amqp.BasicQos{PrefetchCount: 1, Global: true})
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	p.consume(1, "q", "c")
	p.delivers(1, "c1:1")
	do[*amqp.BasicRecoverOK](p, 1, &amqp.BasicRecover{Requeue: true})
	p.delivers(1, "c2:1*")
	p.send(1, &amqp.BasicAck{DeliveryTag: 2})
	p.silent()
	p.commit(1)
	p.delivers(1, "c3:2")
}

// On the default exchange each CC key is the name of a queue, which may be declared before the transaction is committed.
func TestTransactionSizeOfKeys(t *testing.T) {
	const keys = 100
	p := newProbe(t).open().channel(1)
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	cc := make(amqp.Array, keys)
	for i := range cc {
		cc[i] = "q" + strconv.Itoa(i)
	}
	p.publish(1, published{key: "q", props: withHeaders("CC", cc), body: "x"})
	if got := p.conn.srv.PendingBytes(); got < keys*100 {
		t.Errorf("%d bytes count", got)
	}
	p.rollback(1)
	if got := p.conn.srv.PendingBytes(); got > 1000 {
		t.Errorf("after the rollback %d bytes count", got)
	}
}
