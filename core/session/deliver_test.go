package session

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

// deliveries formats deliveries: consumer tag, delivery tag and body, with an asterisk for redelivered.
func (p *probe) deliveries(channel uint16) (s string) {
	p.t.Helper()
	for len(p.out) > 0 && [4]byte(p.out[7:11]) == [4]byte{0, 60, 0, 60} {
		m := expect[*amqp.BasicDeliver](p, channel)
		_, body := p.content(channel)
		if m.Redelivered {
			body += "*"
		}
		if s != "" {
			s += " "
		}
		s += fmt.Sprintf("%s%d:%s", m.ConsumerTag, m.DeliveryTag, body)
	}
	return s
}

func (p *probe) delivers(channel uint16, want string) {
	p.t.Helper()
	if got := p.deliveries(channel); got != want {
		p.t.Errorf("delivered: got %q, want %q", got, want)
	}
}

func (p *probe) consume(channel uint16, queue, tag string) {
	p.t.Helper()
	do[*amqp.BasicConsumeOK](p, channel, &amqp.BasicConsume{Queue: queue, ConsumerTag: tag})
}

func bodies(key string, list ...string) (ms []published) {
	for _, b := range list {
		ms = append(ms, published{key: key, body: b})
	}
	return ms
}

func TestPrefetch(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "q")
	do[*amqp.BasicQosOK](p, 1, &amqp.BasicQos{PrefetchCount: 2})
	p.consume(1, "q", "a")
	do[*amqp.BasicQosOK](p, 1, &amqp.BasicQos{PrefetchCount: 1}) // for consumers to come
	p.consume(1, "q", "b")
	p.publish(1, bodies("q", "1", "2", "3", "4", "5", "6")...)
	p.delivers(1, "a1:1 b2:2 a3:3")
	p.send(1, &amqp.BasicAck{DeliveryTag: 2})
	p.delivers(1, "b4:4")
	p.send(1, &amqp.BasicAck{DeliveryTag: 3, Multiple: true})
	p.delivers(1, "a5:5 a6:6")
}

func TestChannelPrefetch(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "q")
	p.queue(1, "r")
	do[*amqp.BasicQosOK](p, 1, &amqp.BasicQos{PrefetchCount: 2, Global: true})
	p.consume(1, "q", "a")
	p.consume(1, "r", "b")
	p.publish(1, bodies("q", "q1", "q2", "q3")...)
	p.publish(1, bodies("r", "r1")...)
	p.delivers(1, "a1:q1 a2:q2")
	// basic.get neither uses nor returns credit.
	do[*amqp.BasicGetOK](p, 1, &amqp.BasicGet{Queue: "q"})
	if _, body := p.content(1); body != "q3" {
		t.Errorf("got %s", body)
	}
	p.send(1, &amqp.BasicAck{DeliveryTag: 3})
	p.silent()
	p.send(1, &amqp.BasicAck{DeliveryTag: 1})
	p.delivers(1, "b4:r1")
	p.publish(1, bodies("q", "q4", "q5")...)
	p.silent()
	p.send(1, &amqp.BasicQos{Global: true}) // no limit any more
	expect[*amqp.BasicQosOK](p, 1)
	p.delivers(1, "a5:q4 a6:q5")
}

// A channel kept its limit after another limit was set for its consumers. RabbitMQ removes it, even for waiting consumers: an application that
// acknowledged 100 messages together, with a library that had set a global limit of 10, waited forever.
func TestAPrefetchForConsumersEndsTheChannels(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "q")
	p.queue(1, "r")
	do[*amqp.BasicQosOK](p, 1, &amqp.BasicQos{PrefetchCount: 1, Global: true})
	p.consume(1, "q", "a")
	p.publish(1, bodies("q", "q1", "q2", "q3")...)
	p.delivers(1, "a1:q1")
	p.send(1, &amqp.BasicQos{PrefetchCount: 2})
	expect[*amqp.BasicQosOK](p, 1)
	p.delivers(1, "a2:q2 a3:q3")
	p.consume(1, "r", "b")
	p.publish(1, bodies("r", "r1", "r2", "r3")...)
	p.delivers(1, "b4:r1 b5:r2")
	do[*amqp.BasicQosOK](p, 1, &amqp.BasicQos{PrefetchCount: 6, Global: true}) // and a later one limits both
	p.send(1, &amqp.BasicAck{DeliveryTag: 4})
	p.delivers(1, "b6:r3")
	p.publish(1, bodies("q", "q4", "q5")...)
	p.delivers(1, "a7:q4")
}

// A consumer without acknowledgements got messages while its channel had no credit. RabbitMQ makes it wait, and gives it everything as
// soon as there is credit, which it does not use up. Direct replies do not wait.
func TestChannelPrefetchWithoutAcknowledgements(t *testing.T) {
	p := newProbe(t).open().channel(1).channel(2)
	p.queue(1, "q")
	p.queue(1, "r")
	do[*amqp.BasicQosOK](p, 1, &amqp.BasicQos{PrefetchCount: 1, Global: true})
	do[*amqp.BasicConsumeOK](p, 1, &amqp.BasicConsume{Queue: "r", ConsumerTag: "n", NoAck: true})
	do[*amqp.BasicConsumeOK](p, 1, &amqp.BasicConsume{Queue: replyTo, ConsumerTag: "reply", NoAck: true})
	p.consume(1, "q", "a")
	p.publish(2, bodies("r", "r1", "r2")...)
	p.delivers(1, "n1:r1 n2:r2")
	p.publish(2, bodies("q", "q1")...)
	p.delivers(1, "a3:q1")
	p.publish(2, bodies("r", "r3", "r4")...)
	p.silent()
	p.publish(2, bodies(p.conn.channels.at(1).reply.queue().Config().Name, "answer")...)
	p.delivers(1, "reply4:answer")
	p.send(1, &amqp.BasicAck{DeliveryTag: 3})
	p.delivers(1, "n5:r3 n6:r4")
}

// One queue got all the credit that returned to a channel: of three with 100 messages each, one was empty after 99 acknowledgements,
// and the others untouched.
func TestChannelPrefetchIsSharedFairly(t *testing.T) {
	for _, limit := range []uint64{1, 4} {
		p := newProbe(t).open().channel(1)
		do[*amqp.BasicQosOK](p, 1, &amqp.BasicQos{PrefetchCount: uint16(limit), Global: true})
		for _, q := range []string{"q", "r", "s"} {
			p.queue(1, q)
			p.publish(1, slices.Repeat(bodies(q, "m"), 100)...)
			p.consume(1, q, q)
			p.deliveries(1)
		}
		for tag := uint64(1); tag <= 99; tag++ {
			p.send(1, &amqp.BasicAck{DeliveryTag: tag})
		}
		p.feed(nil)
		p.deliveries(1)
		for _, q := range []string{"q", "r", "s"} {
			do[*amqp.BasicCancelOK](p, 1, &amqp.BasicCancel{ConsumerTag: q})
			ok := do[*amqp.QueueDeclareOK](p, 1, &amqp.QueueDeclare{Queue: q, Passive: true})
			if ok.MessageCount < 63 || ok.MessageCount > 68 {
				t.Errorf("limit %d: %s has %d messages left", limit, q, ok.MessageCount)
			}
		}
	}
}

// RabbitMQ has no global prefetch for quorum queues: it refuses their consumers on a channel that has one. Deliveries and acknowledgements of a
// consumer that existed before do not count.
func TestQuorumQueuesHaveNoChannelPrefetch(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "q")
	do[*amqp.QueueDeclareOK](p, 1, &amqp.QueueDeclare{Queue: "qq", Durable: true, Arguments: amqp.Table{{Key: "x-queue-type", Value: "quorum"}}})
	p.consume(1, "qq", "z")
	p.consume(1, "q", "a")
	do[*amqp.BasicQosOK](p, 1, &amqp.BasicQos{PrefetchCount: 1, Global: true})
	p.publish(1, bodies("qq", "1", "2")...)
	p.delivers(1, "z1:1 z2:2")
	p.publish(1, bodies("q", "3", "4")...)
	p.delivers(1, "a3:3")
	p.send(1, &amqp.BasicAck{DeliveryTag: 1})
	p.silent()
	p.send(1, &amqp.BasicAck{DeliveryTag: 3})
	p.delivers(1, "a4:4")
	p.send(1, &amqp.BasicConsume{Queue: "qq", ConsumerTag: "y", NoAck: true})
	e := expect[*amqp.ConnectionClose](p, 0)
	if want := "NOT_IMPLEMENTED - queue 'qq' in vhost '/' does not support global qos"; e.ReplyCode != 540 || e.ReplyText != want {
		t.Errorf("got %d %q, want %q", e.ReplyCode, e.ReplyText, want)
	}
}

// A consumer whose channel had no credit kept another client's idle consumer from getting a message.
func TestAChannelAtItsLimitStopsNobodyElse(t *testing.T) {
	s := testServer(t)
	a, b, p := probeOf(t, s, Peer{}).open().channel(1), probeOf(t, s, Peer{}).open().channel(1), probeOf(t, s, Peer{}).open().channel(1)
	p.queue(1, "q1")
	p.queue(1, "q2")
	do[*amqp.BasicQosOK](a, 1, &amqp.BasicQos{PrefetchCount: 1, Global: true})
	a.consume(1, "q1", "a1")
	a.consume(1, "q2", "a2")
	b.consume(1, "q2", "b")
	p.publish(1, bodies("q1", "x")...)
	a.feed(nil)
	a.delivers(1, "a11:x")
	p.publish(1, bodies("q2", "y")...)
	a.feed(nil)
	a.silent()
	b.feed(nil)
	b.delivers(1, "b1:y")
}

// With a global prefetch only, the unacknowledged messages of a cancelled consumer were delivered out of order: 1 3 5 2.
func TestReturnedMessagesAreDeliveredInOrder(t *testing.T) {
	s := testServer(t)
	a, b := probeOf(t, s, Peer{}).open().channel(1), probeOf(t, s, Peer{}).open().channel(1)
	a.queue(1, "q")
	a.consume(1, "q", "a")
	a.publish(1, bodies("q", "1", "2", "3", "4", "5", "6")...)
	a.delivers(1, "a1:1 a2:2 a3:3 a4:4 a5:5 a6:6")
	a.send(1, &amqp.BasicAck{DeliveryTag: 5}, &amqp.BasicAck{DeliveryTag: 6})
	do[*amqp.ConnectionCloseOK](a, 0, &amqp.ConnectionClose{ReplyCode: 200})
	do[*amqp.BasicQosOK](b, 1, &amqp.BasicQos{PrefetchCount: 1, Global: true})
	b.consume(1, "q", "b")
	for tag := uint64(1); tag <= 4; tag++ {
		b.delivers(1, fmt.Sprintf("b%d:%d*", tag, tag))
		b.send(1, &amqp.BasicAck{DeliveryTag: tag})
	}
}

// The successor of a single active consumer got the ready messages first, and the unacknowledged ones after them. RabbitMQ keeps the
// order.
func TestTheNextActiveConsumerIsServedInOrder(t *testing.T) {
	closers := map[string]func(p *probe){
		"channel.close":    func(p *probe) { do[*amqp.ChannelCloseOK](p, 1, &amqp.ChannelClose{ReplyCode: 200}) },
		"connection.close": func(p *probe) { do[*amqp.ConnectionCloseOK](p, 0, &amqp.ConnectionClose{ReplyCode: 200}) },
		"connection lost":  func(p *probe) { p.conn.Release(p.now) },
		"channel error":    func(p *probe) { p.send(1, &amqp.BasicAck{DeliveryTag: 99}) },
	}
	for _, kind := range []string{"classic", "quorum"} {
		for name, end := range closers {
			t.Run(kind+"/"+name, func(t *testing.T) {
				s := testServer(t)
				a, b := probeOf(t, s, Peer{}).open().channel(1), probeOf(t, s, Peer{}).open().channel(1)
				do[*amqp.QueueDeclareOK](a, 1, &amqp.QueueDeclare{Queue: "q", Durable: true, Arguments: amqp.Table{
					{Key: "x-queue-type", Value: kind}, {Key: "x-single-active-consumer", Value: true},
				}})
				do[*amqp.BasicQosOK](a, 1, &amqp.BasicQos{PrefetchCount: 3})
				a.consume(1, "q", "a")
				b.consume(1, "q", "b")
				a.publish(1, bodies("q", "1", "2", "3", "4", "5")...)
				a.delivers(1, "a1:1 a2:2 a3:3")
				end(a)
				b.feed(nil)
				b.delivers(1, "b1:1* b2:2* b3:3* b4:4 b5:5")
			})
		}
	}
}

func TestRedelivery(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "q")
	do[*amqp.BasicQosOK](p, 1, &amqp.BasicQos{PrefetchCount: 3})
	p.consume(1, "q", "c")
	p.publish(1, bodies("q", "1", "2", "3", "4")...)
	p.delivers(1, "c1:1 c2:2 c3:3")
	p.send(1, &amqp.BasicNack{DeliveryTag: 2, Multiple: true, Requeue: true})
	p.delivers(1, "c4:1* c5:2*")
	p.send(1, &amqp.BasicReject{DeliveryTag: 4, Requeue: true})
	p.delivers(1, "c6:1*")
	p.send(1, &amqp.BasicReject{DeliveryTag: 6})
	p.delivers(1, "c7:4")
	do[*amqp.BasicRecoverOK](p, 1, &amqp.BasicRecover{Requeue: true})
	p.delivers(1, "c8:2* c9:3* c10:4*")
	p.send(1, &amqp.BasicRecoverAsync{Requeue: true})
	p.delivers(1, "c11:2* c12:3* c13:4*")
	p.send(1, &amqp.BasicNack{Multiple: true})
	p.holds(1, "q", 0)
	p.send(1, &amqp.BasicAck{Multiple: true}) // nothing is as good as anything
	p.silent()
}

// A channel that closes returns its unacknowledged messages in order, whichever side closes it.
func TestUnackedAreReturned(t *testing.T) {
	closers := map[string]func(p *probe){
		"by the client": func(p *probe) { do[*amqp.ChannelCloseOK](p, 1, &amqp.ChannelClose{ReplyCode: 200}) },
		"by an error": func(p *probe) {
			p.send(1, &amqp.BasicAck{DeliveryTag: 99})
			expect[*amqp.ChannelClose](p, 1)
		},
		"with the connection": func(p *probe) { do[*amqp.ConnectionCloseOK](p, 0, &amqp.ConnectionClose{ReplyCode: 200}) },
		"with the socket":     func(p *probe) { p.conn.Release(p.now) },
		"by a hard error": func(p *probe) {
			p.send(1, &amqp.BasicQos{PrefetchSize: 1})
			expect[*amqp.ConnectionClose](p, 0)
		},
	}
	for name, end := range closers {
		t.Run(name, func(t *testing.T) {
			s := testServer(t)
			p, other := probeOf(t, s, Peer{}).open().channel(1), probeOf(t, s, Peer{}).open().channel(1)
			p.queue(1, "q")
			p.publish(1, bodies("q", "1", "2", "3", "4")...)
			do[*amqp.BasicQosOK](p, 1, &amqp.BasicQos{PrefetchCount: 2})
			do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
			p.consume(1, "q", "c")
			p.delivers(1, "c1:1 c2:2")
			do[*amqp.BasicGetOK](p, 1, &amqp.BasicGet{Queue: "q"})
			p.content(1)
			p.send(1, &amqp.BasicAck{DeliveryTag: 2}) // it is not committed
			p.publish(1, bodies("q", "lost")...)
			end(p)
			for _, want := range []string{"1", "2", "3", "4"} {
				if m, _, got := other.got(1, "q"); got != want || m.Redelivered != (want != "4") {
					t.Errorf("got %s, redelivered is %v, want %s", got, m.Redelivered, want)
				}
			}
			do[*amqp.BasicGetEmpty](other, 1, &amqp.BasicGet{Queue: "q"})
			if m := do[*amqp.QueueDeclareOK](other, 1, &amqp.QueueDeclare{Queue: "q", Passive: true}); m.ConsumerCount != 0 {
				t.Errorf("consumers: got %d", m.ConsumerCount)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "q")
	if m := do[*amqp.BasicCancelOK](p, 1, &amqp.BasicCancel{ConsumerTag: "nobody"}); m.ConsumerTag != "nobody" {
		t.Errorf("got %+v", m)
	}
	p.consume(1, "q", "c")
	p.publish(1, bodies("q", "1")...)
	p.delivers(1, "c1:1")
	do[*amqp.BasicCancelOK](p, 1, &amqp.BasicCancel{ConsumerTag: "c"})
	p.publish(1, bodies("q", "2")...)
	p.silent()
	p.consume(1, "q", "c")
	p.delivers(1, "c2:2")
	p.send(1, &amqp.BasicCancel{ConsumerTag: "c", NoWait: true})
	p.silent()
	p.send(1, &amqp.BasicAck{DeliveryTag: 2, Multiple: true}) // delivered messages may still be acknowledged
	do[*amqp.ChannelCloseOK](p, 1, &amqp.ChannelClose{ReplyCode: 200})
	p.channel(1)
	p.holds(1, "q", 0)
}

func TestConsumerTags(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "q")
	m := do[*amqp.BasicConsumeOK](p, 1, &amqp.BasicConsume{Queue: "q"})
	if !strings.HasPrefix(m.ConsumerTag, "amq.ctag-") || len(m.ConsumerTag) < 25 {
		t.Errorf("got tag %q", m.ConsumerTag)
	}
	p.send(1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "quiet", NoWait: true})
	p.silent()
	do[*amqp.BasicCancelOK](p, 1, &amqp.BasicCancel{ConsumerTag: m.ConsumerTag})
	p.publish(1, bodies("q", "1")...)
	p.delivers(1, "quiet1:1")
}

// A client that understands basic.cancel gets it when a queue is deleted. It may still acknowledge earlier deliveries.
func TestCancelNotify(t *testing.T) {
	for _, can := range [][]string{nil, {"consumer_cancel_notify"}} {
		t.Run(fmt.Sprint(can), func(t *testing.T) {
			s := testServer(t)
			p, other := probeOf(t, s, Peer{}).open(can...).channel(1), probeOf(t, s, Peer{}).open().channel(1)
			p.queue(1, "q")
			p.consume(1, "q", "c")
			p.publish(1, bodies("q", "1")...)
			p.delivers(1, "c1:1")
			do[*amqp.QueueDeleteOK](other, 1, &amqp.QueueDelete{Queue: "q"})
			p.feed(nil)
			if can != nil {
				if m := expect[*amqp.BasicCancel](p, 1); m.ConsumerTag != "c" || !m.NoWait {
					t.Errorf("got %+v", m)
				}
			}
			p.silent()
			p.send(1, &amqp.BasicAck{DeliveryTag: 1})
			p.queue(1, "q")
			p.consume(1, "q", "c") // the tag is free again
		})
	}
}

// Messages for a peer that does not read stay in their queue, except for a bounded number. The peer gets them when it reads again.
func TestSlowConsumer(t *testing.T) {
	r := newRig(t)
	do[*amqp.BasicConsumeOK](r.probe, 1, &amqp.BasicConsume{Queue: "q", NoAck: true})
	frames := messages(10, published{key: "q", body: strings.Repeat("x", 10_000)})
	for range 100 {
		r.feed(frames)
	}
	waits := func() int { return r.conn.out.size() }
	if got := waits(); got < maxDeliveryBuffer || got > maxDeliveryBuffer+20_000 {
		t.Errorf("%d bytes wait to be written", got)
	}
	if got, want := r.drain(), 1000*10_000; got < want {
		t.Errorf("drained %d bytes, want more than %d", got, want)
	}
	r.feed(messages(1, published{key: "q", body: "last"}))
	if waits() == 0 {
		t.Error("nothing is delivered any more")
	}
}

// The same with a global prefetch: the consumers that it stalled are woken by an acknowledgement, not by the writer.
func TestSlowConsumerWithLimit(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "q")
	do[*amqp.BasicQosOK](p, 1, &amqp.BasicQos{PrefetchCount: 1, Global: true})
	for _, tag := range []string{"a", "b", "c"} {
		p.consume(1, "q", tag)
	}
	p.publish(1, bodies("q", "1", "2", "3", "4", "5", "6")...)
	for tag := uint64(1); tag <= 6; tag++ {
		m := p.delivered(1, strconv.FormatUint(tag, 10))
		p.silent()
		p.send(1, &amqp.BasicAck{DeliveryTag: m.DeliveryTag})
	}
	p.holds(1, "q", 0)
}

func TestGet(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "q")
	do[*amqp.BasicGetEmpty](p, 1, &amqp.BasicGet{Queue: "q"})
	p.publish(1, bodies("q", "1", "2", strings.Repeat("3", 200_000))...)
	m := do[*amqp.BasicGetOK](p, 1, &amqp.BasicGet{}) // of the queue declared last
	if _, body := p.content(1); body != "1" || m.MessageCount != 2 || m.DeliveryTag != 1 || m.Redelivered || m.RoutingKey != "q" {
		t.Errorf("got %s with %+v", body, m)
	}
	m, _, body := p.got(1, "q")
	if body != "2" || m.MessageCount != 1 || m.DeliveryTag != 2 {
		t.Errorf("got %s with %+v", body, m)
	}
	m = do[*amqp.BasicGetOK](p, 1, &amqp.BasicGet{Queue: "q"})
	if _, body := p.content(1); len(body) != 200_000 || m.DeliveryTag != 3 {
		t.Errorf("got %d bytes with %+v", len(body), m)
	}
	p.send(1, &amqp.BasicNack{DeliveryTag: 3, Multiple: true, Requeue: true})
	p.holds(1, "q", 2)
	if m, _, body := p.got(1, "q"); body != "1" || !m.Redelivered {
		t.Errorf("got %s with %+v", body, m)
	}
}

// When a connection was closed, the messages that one of its channels returned went to the next channel, and so on. Each time counted as a
// delivery: with 20 channels, a message of a quorum queue exceeded its delivery limit.
func TestAConnectionThatClosesDoesNotHandMessagesToItself(t *testing.T) {
	const channels = 25
	p := newProbe(t).open().channel(1)
	do[*amqp.QueueDeclareOK](p, 1, &amqp.QueueDeclare{Queue: "q", Durable: true, Arguments: amqp.Table{{Key: "x-queue-type", Value: "quorum"}}})
	for id := range uint16(channels) {
		if id > 0 {
			p.channel(id + 1)
		}
		p.consume(id+1, "q", "c")
	}
	p.publish(1, bodies("q", "m")...)
	p.delivers(1, "c1:m")
	p.send(0, &amqp.ConnectionClose{ReplyCode: amqp.ReplySuccess})
	expect[*amqp.ConnectionCloseOK](p, 0)

	again := probeOf(t, p.conn.srv, Peer{}).open().channel(1)
	m := do[*amqp.BasicGetOK](again, 1, &amqp.BasicGet{Queue: "q"})
	if _, body := again.content(1); body != "m" || !m.Redelivered {
		t.Errorf("got %q, redelivered: %t", body, m.Redelivered)
	}
}

// A client that deletes a queue it consumes from gets delete-ok, and then basic.cancel for its consumers. The order used to be reversed.
func TestDeleteOKIsBeforeCancel(t *testing.T) {
	s := testServer(t)
	p, other := probeOf(t, s, Peer{}).open("consumer_cancel_notify").channel(1), probeOf(t, s, Peer{}).open("consumer_cancel_notify").channel(1)
	for _, noWait := range []bool{false, true} {
		p.queue(1, "q")
		for _, tag := range []string{"b", "a", "d", "c"} {
			p.consume(1, "q", tag)
			other.consume(1, "q", tag)
		}
		p.send(1, &amqp.QueueDelete{Queue: "q", NoWait: noWait})
		if !noWait {
			expect[*amqp.QueueDeleteOK](p, 1)
		}
		other.feed(nil)
		for _, client := range []*probe{p, other} {
			for _, want := range []string{"a", "b", "c", "d"} {
				if got := expect[*amqp.BasicCancel](client, 1).ConsumerTag; got != want {
					t.Errorf("%s was cancelled, want %s", got, want)
				}
			}
			client.silent()
		}
	}
}

// A consumer that was stalled by a global prefetch stayed in the list after it was cancelled: a client that consumed and cancelled again
// and again filled the memory.
func TestCancelledConsumerIsNotStalled(t *testing.T) {
	p := newProbe(t).open().channel(1)
	p.queue(1, "q")
	do[*amqp.BasicQosOK](p, 1, &amqp.BasicQos{PrefetchCount: 1, Global: true})
	p.publish(1, bodies("q", "1", "2")...)
	p.consume(1, "q", "first")
	p.delivers(1, "first1:1")
	for range 10 {
		p.consume(1, "q", "c")
		do[*amqp.BasicCancelOK](p, 1, &amqp.BasicCancel{ConsumerTag: "c"})
		p.queue(1, "another")
		p.publish(1, bodies("another", "3")...)
		p.consume(1, "another", "c")
		do[*amqp.QueueDeleteOK](p, 1, &amqp.QueueDelete{Queue: "another"})
	}
	if n := len(p.conn.channels.at(1).deliveries.credit.stalled); n != 1 {
		t.Errorf("%d consumers wait", n)
	}
	p.send(1, &amqp.BasicAck{DeliveryTag: 1})
	p.delivers(1, "first2:2")
}
