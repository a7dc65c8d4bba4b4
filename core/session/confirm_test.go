package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// picky is a plugin that refuses messages with the body "no" on queues with the argument x-picky.
type picky struct{}

func (picky) Arguments() []hook.Argument {
	return []hook.Argument{{Name: "x-picky", Check: func(any, hook.Args) error { return nil }}}
}

func (picky) Attach(q hook.Queue) hook.Hooks {
	if _, ok := q.Setting("picky"); !ok {
		return hook.Hooks{}
	}
	return hook.Hooks{OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			if ms[i].Size == len("no") {
				vs[i].Action = hook.Refuse
			}
		}
	}}
}

// withPicky gives a server's vhost the plugin picky.
func withPicky(t *testing.T) func(*Options) {
	t.Helper()
	v := vhost.New(vhost.Config{Name: "/", Chain: withPlugin(t, picky{}), Clock: clock.New(), Log: discard()})
	return func(o *Options) { o.VHosts = func(string) (*vhost.VHost, bool) { return v, true } }
}

func TestConfirms(t *testing.T) {
	p := newProbe(t, withPicky(t)).open().channel(1).channel(2)
	p.queue(1, "picky", "x-picky", true)
	p.queue(1, "q")
	for _, name := range []string{"q", "picky"} {
		do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: name, Exchange: "amq.fanout"})
	}
	do[*amqp.ConfirmSelectOK](p, 1, &amqp.ConfirmSelect{})
	p.send(2, &amqp.ConfirmSelect{NoWait: true})
	to := func(exchange, key, body string) published { return published{exchange: exchange, key: key, body: body} }
	tests := []struct {
		name string
		ms   []published
		want string
	}{
		{"one", []published{to("", "q", "a")}, "+1"},
		{"several", []published{to("", "q", "a"), to("", "q", "b"), to("", "q", "c")}, "+4.."},
		{"unroutable", []published{to("", "nowhere", "a"), to("", "q", "b")}, "+5 +6"},
		{"refused", []published{to("", "picky", "no")}, "-7"},
		{"refused in between", []published{to("", "picky", "a"), to("", "picky", "b"), to("", "picky", "no"), to("", "picky", "c")}, "+9.. -10 +11"},
		{"refused by one of two", []published{to("amq.fanout", "", "no"), to("amq.fanout", "", "a")}, "-12 +13"},
		{"nothing", nil, ""},
	}
	for _, tt := range tests {
		p.publish(1, tt.ms...)
		if got := p.confirms(1); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
	p.publish(2, to("", "q", "a"))
	if got := p.confirms(2); got != "+1" {
		t.Errorf("other channel: got %s", got)
	}
	p.publish(1, to("", "q", "a"))
	p.send(1, &amqp.BasicAck{DeliveryTag: 99}) // confirms of messages before an error are sent before channel.close
	if got := p.confirms(1); got != "+14" {
		t.Errorf("before channel.close: got %s", got)
	}
	p.closed(1, 406, "PRECONDITION_FAILED - unknown delivery tag 99")
}

// confirms formats all confirms: + or - and the sequence number, with two dots for "and all before".
func (p *probe) confirms(channel uint16) (s string) {
	p.t.Helper()
	for len(p.out) > 0 && [2]byte(p.out[7:9]) == [2]byte{0, 60} {
		if s != "" {
			s += " "
		}
		switch on, m := p.method(); m := m.(type) {
		case *amqp.BasicAck:
			s += fmt.Sprintf("+%d", m.DeliveryTag)
			if m.Multiple {
				s += ".."
			}
		case *amqp.BasicNack:
			s += fmt.Sprintf("-%d", m.DeliveryTag)
			if m.Multiple || m.Requeue || on != channel {
				p.t.Errorf("got %+v on channel %d", m, on)
			}
		default:
			p.t.Fatalf("got %T %+v", m, m)
		}
	}
	return s
}

// confirmModel is a client that records its confirms.
type confirmModel struct {
	t       *testing.T
	waiting map[uint64]bool // sequence numbers
	acked   map[uint64]bool
}

func (p *confirmModel) read(frames []byte) {
	p.t.Helper()
	for len(frames) > 0 {
		f, n, err := amqp.NextFrame(frames, 1<<20)
		if err != nil || n == 0 {
			p.t.Fatal(err)
		}
		frames = frames[n:]
		m, err := amqp.ParseMethod(f.Payload)
		if err != nil {
			p.t.Fatal(err)
		}
		switch m := m.(type) {
		case *amqp.BasicAck:
			p.settle(m.DeliveryTag, m.Multiple, true)
		case *amqp.BasicNack:
			p.settle(m.DeliveryTag, m.Multiple, false)
		}
	}
}

func (p *confirmModel) settle(tag uint64, multiple, ack bool) {
	p.t.Helper()
	if !p.waiting[tag] {
		p.t.Errorf("message %d: confirmed, and is not waited for", tag)
	}
	for seq := range p.waiting {
		if seq == tag || multiple && seq < tag {
			delete(p.waiting, seq)
			p.acked[seq] = ack
		}
	}
}

// In whatever order queues answer, every message is confirmed exactly once: as soon as all its queues have answered, and according to
// their answers.
func TestConfirmWindow(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var w confirmWindow
		p := &confirmModel{t: t, waiting: map[uint64]bool{}, acked: map[uint64]bool{}}
		var open []queue.Message // one for each answer that is due
		due, refused := map[uint64]int{}, map[uint64]bool{}
		seq := uint64(0)
		for range 50 {
			var counts []uint32
			for range rnd.IntN(8) {
				seq++
				n := rnd.IntN(4)
				counts = append(counts, uint32(n))
				due[seq] = n
				p.waiting[seq] = true
				for range n {
					open = append(open, queue.Message{Seq: seq})
				}
			}
			if !w.add(counts) {
				p.read(w.settleAdded(nil, 1, len(counts)))
			}
			rnd.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
			n := rnd.IntN(len(open) + 1)
			for i := range open[:n] {
				due[open[i].Seq]--
				if rnd.IntN(5) == 0 {
					open[i].Flags |= queue.Refused
					refused[open[i].Seq] = true
				}
			}
			p.read(w.settle(nil, 1, open[:n]))
			open = slices.Delete(open, 0, n)
			for seq, n := range due {
				if p.waiting[seq] != (n > 0) {
					t.Fatalf("message %d: %d answers due, waiting is %v", seq, n, p.waiting[seq])
				}
				if n == 0 && p.acked[seq] == refused[seq] {
					t.Fatalf("message %d: acked is %v, refused is %v", seq, p.acked[seq], refused[seq])
				}
			}
		}
		p.read(w.settle(nil, 1, open))
		if len(p.waiting) > 0 || len(w.states) > 0 {
			t.Fatalf("left: %d messages, %d states", len(p.waiting), len(w.states))
		}
	}
}

// The window's length depends on the unconfirmed messages, not on all messages so far.
func TestConfirmWindowIsBounded(t *testing.T) {
	var w confirmWindow
	var dst []byte
	for seq := uint64(1); seq < 100_000; seq += 2 {
		w.add([]uint32{1, 1})
		ms := []queue.Message{{Seq: seq}}
		if seq > 1 {
			ms = append(ms, queue.Message{Seq: seq - 1})
		}
		dst = w.settle(dst[:0], 1, ms)
	}
	if got := cap(w.states); got > 64 {
		t.Errorf("%d states for one message", got)
	}
}
