package session

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// dice reads decisions from a fuzzer's bytes; after the last byte they are 0.
type dice struct{ bytes []byte }

func (d *dice) n(below int) int {
	if len(d.bytes) == 0 {
		return 0
	}
	v := int(d.bytes[0])
	d.bytes = d.bytes[1:]
	return v % below
}

func (d *dice) yes() bool { return d.n(2) == 1 }

func (d *dice) name() string { return fmt.Sprintf("q%d", d.n(3)) }

// message returns the frames of a message, which may be invalid.
func (d *dice) message(channel uint16) []byte {
	m := published{key: d.name(), body: strings.Repeat("x", d.n(3)*50), mandatory: d.yes()}
	switch d.n(12) {
	case 0:
		m.props = withHeaders("CC", amqp.Array{d.name(), "nowhere"}, "BCC", amqp.Array{d.name()})
	case 1:
		m.props = withReplyTo(replyTo)
	case 2:
		m.props = withExpiration("1000")
	case 3:
		m.props = withExpiration("x")
	case 4:
		m.exchange = "nope"
	case 5:
		m.exchange = "amq.fanout"
	}
	b := m.frames(channel)
	if d.n(30) == 1 {
		b = b[:len(b)-d.n(len(b))]
	}
	return b
}

// method returns a method that a client may send, valid or not.
func (d *dice) method() amqp.Method {
	tag := uint64(d.n(12))
	switch d.n(19) {
	case 0:
		return &amqp.QueueDeclare{Queue: d.name(), AutoDelete: d.n(8) == 1}
	case 1:
		return &amqp.QueueDelete{Queue: d.name(), IfEmpty: d.yes()}
	case 2:
		return &amqp.QueueBind{Queue: d.name(), Exchange: "amq.fanout", NoWait: d.yes()}
	case 3, 4:
		return &amqp.BasicConsume{Queue: d.name(), ConsumerTag: strconv.Itoa(d.n(30)), NoAck: d.yes(), Exclusive: d.n(9) == 1}
	case 5:
		return &amqp.BasicCancel{ConsumerTag: strconv.Itoa(d.n(30)), NoWait: d.yes()}
	case 6, 7, 8:
		return &amqp.BasicAck{DeliveryTag: tag, Multiple: d.yes()}
	case 9:
		return &amqp.BasicNack{DeliveryTag: tag, Multiple: d.yes(), Requeue: d.yes()}
	case 10:
		return &amqp.BasicReject{DeliveryTag: tag, Requeue: d.yes()}
	case 11:
		return &amqp.BasicGet{Queue: d.name(), NoAck: d.yes()}
	case 12:
		return &amqp.BasicQos{PrefetchCount: uint16(d.n(4)), Global: d.yes()}
	case 13:
		return &amqp.ConfirmSelect{NoWait: d.yes()}
	case 14:
		return &amqp.TxSelect{}
	case 15:
		return &amqp.TxCommit{}
	case 16:
		return &amqp.TxRollback{}
	case 17:
		return &amqp.BasicRecover{Requeue: true}
	}
	return &amqp.BasicConsume{Queue: replyTo, ConsumerTag: "r", NoAck: true}
}

// frames returns what a client sends next on one of three channels.
func (d *dice) frames() []byte {
	channel := uint16(1 + d.n(3))
	switch d.n(12) {
	case 0:
		return methodFrame(channel, &amqp.ChannelOpen{})
	case 1:
		return methodFrame(channel, &amqp.ChannelCloseOK{})
	case 2:
		return methodFrame(channel, &amqp.ChannelClose{ReplyCode: 200})
	case 3, 4, 5, 6:
		return d.message(channel)
	}
	return methodFrame(channel, d.method())
}

// FuzzChannels lets two clients send arbitrary frames. Nothing breaks, and when they have left, they hold nothing and every message is back in
// its queue.
func FuzzChannels(f *testing.F) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 30 {
		seed := make([]byte, 2000)
		for i := range seed {
			seed[i] = byte(rnd.Uint32())
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := testServer(t, func(o *Options) { o.MessageMax = 120 })
		v, _ := s.VHosts("/")
		d := &dice{data[:min(len(data), 4096)]}
		clients := []*probe{probeOf(t, s, Peer{}).open("consumer_cancel_notify").channel(1), probeOf(t, s, Peer{}).open().channel(1)}
		for len(d.bytes) > 0 {
			who := d.n(2)
			if clients[who].conn.State() != Open {
				clients[who].conn.Release(1)
				clients[who] = probeOf(t, s, Peer{}).open().channel(1)
			}
			p := clients[who]
			var read []byte
			for range 1 + d.n(5) {
				read = append(read, d.frames()...)
			}
			p.feed(read)
			p.out = nil
			if d.n(8) == 1 {
				p.conn.Tick(p.now)
			}
		}
		left := map[*queue.Mailbox]int{}
		for _, mailbox := range v.Queues() {
			left[mailbox] = stats(mailbox).Ready + stats(mailbox).Unacked
		}
		for _, p := range clients {
			p.conn.Release(p.now)
		}
		checkIdle(t, s, v, left)
	})
}

func stats(mailbox *queue.Mailbox) (s queue.Stats) {
	_ = mailbox.Do(func(q *queue.Queue, _ hook.Instant) { s = q.Stats() })
	return s
}

// checkIdle expects that no client uses the broker, and that the queues have their messages.
func checkIdle(t *testing.T, s *Server, v *vhost.VHost, messages map[*queue.Mailbox]int) {
	t.Helper()
	for _, mailbox := range v.Queues() {
		got := stats(mailbox)
		if got.Consumers != 0 || got.Unacked != 0 || got.Ready != messages[mailbox] {
			t.Errorf("%s: got %d consumers, %d unacknowledged, %d ready, want %d ready",
				mailbox.Config().Name, got.Consumers, got.Unacked, got.Ready, messages[mailbox])
		}
		c := got.Counters
		gone := c.DeliveredNoAck + c.Acked + c.Purged
		for _, n := range c.Dropped {
			gone += n
		}
		if want := c.Published - gone; uint64(got.Ready) != want {
			t.Errorf("%s: got %d ready, the counters say %d: %+v", mailbox.Config().Name, got.Ready, want, c)
		}
	}
	if n := s.PendingBytes(); n != 0 {
		t.Errorf("%d bytes are pending", n)
	}
	if n := s.openConns.Load(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
	if n := len(s.replies.queues); n != 0 {
		t.Errorf("%d reply queues are left", n)
	}
}
