package session

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// diskProbe is a broker on a disk, and a client of it.
type diskProbe struct {
	*probe
	store *store.Store
}

// onDisk starts a broker on the content of a disk.
func onDisk(t *testing.T, disk *crashfs.FS) *diskProbe {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{
		Dir: disk, SegmentSize: 64 << 10, Shards: 1, Chain: withPlugin(t, expirations{}), Clock: clock.New(), Log: discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	p := newProbe(t, func(o *Options) { o.VHosts = s.VHost }).open()
	return &diskProbe{p, s}
}

// A message that never got the space of a small disk waited for it for ever, and all other publishers behind it. It is refused, as is a
// transaction.
func TestWhatFitsNoDiskIsRefused(t *testing.T) {
	disk := crashfs.New(1)
	disk.SetSpace(32 << 20)
	s, err := store.Open(t.Context(), store.Options{Dir: disk, Shards: 1, Chain: withPlugin(t, expirations{}), Clock: clock.New(), Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	most := s.LargestMessage()
	p := &diskProbe{newProbe(t, func(o *Options) { o.VHosts, o.MessageMax = s.VHost, int(most) }).open(), s}
	defer p.end()
	p.channel(1).channel(2)
	p.keep(2, "q")
	large := func(size int64) published {
		m := kept("q", "")
		m.body = string(make([]byte, size))
		return m
	}
	p.publish(1, large(most+1))
	p.closed(1, 406, fmt.Sprintf("PRECONDITION_FAILED - message size %d is larger than configured max size %d", most+1, most))

	do[*amqp.TxSelectOK](p.probe, 2, &amqp.TxSelect{})
	p.publish(2, large(most/2), large(most/2), large(most/2))
	p.send(2, &amqp.TxCommit{})
	_, m := p.method()
	if e, ok := m.(*amqp.ChannelClose); !ok || e.ReplyCode != 406 || !strings.HasPrefix(e.ReplyText, "PRECONDITION_FAILED - transaction too large: ") {
		t.Errorf("got %+v", m)
	}
	p.channel(3)
	do[*amqp.ConfirmSelectOK](p.probe, 3, &amqp.ConfirmSelect{})
	p.confirmed(3, large(most))
	p.confirmed(3, kept("q", "small"))
}

// end ends the broker in any state.
func (p *diskProbe) end() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.conn.Release(p.now)
	_ = p.store.Close(ctx) // the disk may be broken
}

func (p *diskProbe) keep(channel uint16, names ...string) {
	p.t.Helper()
	for _, name := range names {
		do[*amqp.QueueDeclareOK](p.probe, channel, &amqp.QueueDeclare{Queue: name, Durable: true})
	}
}

// fetch gets a message and returns its tag.
func (p *diskProbe) fetch(channel uint16, name string) (tag uint64, body string) {
	p.t.Helper()
	m := do[*amqp.BasicGetOK](p.probe, channel, &amqp.BasicGet{Queue: name})
	_, body = p.content(channel)
	return m.DeliveryTag, body
}

// contents takes the messages of a queue.
func (p *diskProbe) contents(name string) (bodies []string) {
	p.t.Helper()
	v, _ := p.store.VHost("/")
	s, err := v.Queue(name, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = s.Do(func(q *queue.Queue, now hook.Instant) {
		for q.Get(now, &queue.Consumer{Queue: s}, func(d queue.Delivery, _ int) { bodies = append(bodies, string(d.Body)) }) {
		}
	})
	return bodies
}

// Power fails at every write of a commit. Afterwards the transaction is there as a whole or not at all, and as a whole if the client got commit-ok.
func TestTransactionIsAllOrNothing(t *testing.T) {
	none, all := "cause other|||", "|a|b c|"
	for seed := range uint64(6) {
		for cut := 0; ; cut++ {
			disk := crashfs.New(seed)
			p := onDisk(t, disk)
			committed := p.replace(disk, cut)
			disk = disk.LosePower()
			p.end()

			p = onDisk(t, disk)
			var contents []string
			for _, name := range []string{"q1", "q2", "q3", "q4"} {
				contents = append(contents, strings.Join(p.contents(name), " "))
			}
			got := strings.Join(contents, "|")
			if got != all && (got != none || committed) {
				t.Errorf("seed %d, cut at write %d, committed %v: got %s", seed, cut, committed, got)
			}
			p.end()
			if committed || t.Failed() {
				break
			}
		}
	}
}

// replace commits a transaction that acknowledges a message, rejects another, and publishes some to other queues. Power fails after the given
// number of writes.
func (p *diskProbe) replace(disk *crashfs.FS, cut int) (committed bool) {
	p.t.Helper()
	p.channel(1)
	p.keep(1, "q1", "q2", "q3", "q4")
	do[*amqp.TxSelectOK](p.probe, 1, &amqp.TxSelect{})
	p.publish(1, kept("q1", "cause"), kept("q1", "other"))
	p.commit(1)
	cause, _ := p.fetch(1, "q1")
	other, _ := p.fetch(1, "q1")
	p.send(1, &amqp.BasicAck{DeliveryTag: cause}, &amqp.BasicReject{DeliveryTag: other})
	p.publish(1, kept("q2", "a"), kept("q3", "b"), kept("q3", "c"), published{key: "q4", body: "transient"})
	disk.CutPower(cut)
	p.send(1, &amqp.TxCommit{})
	_, m := p.method()
	_, committed = m.(*amqp.TxCommitOK)
	return committed
}

// Transactions move tokens from queue to queue until power fails, again and again. There is always exactly one of each token.
func TestTransactionsMoveInOnePiece(t *testing.T) {
	const tokens, queues, lives = 12, 5, 6
	name := func(n int) string { return "q" + strconv.Itoa(n) }
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		disk := crashfs.New(seed)
		for life := range lives {
			p := onDisk(t, disk)
			p.channel(1)
			do[*amqp.TxSelectOK](p.probe, 1, &amqp.TxSelect{})
			if life == 0 {
				for n := range queues {
					p.keep(1, name(n))
				}
				for n := range tokens {
					p.publish(1, kept(name(n%queues), strconv.Itoa(n)))
				}
				p.commit(1)
			}
			disk.CutPower(rng.IntN(60))
			for p.move(rng, name, queues) {
			}
			disk = disk.LosePower()
			p.end()

			p = onDisk(t, disk)
			var found []string
			for n := range queues {
				found = append(found, p.contents(name(n))...)
			}
			p.end()
			disk = disk.Kill()
			if slices.Sort(found); len(found) != tokens || len(slices.Compact(found)) != tokens {
				t.Fatalf("seed %d, life %d: found %v", seed, life, found)
			}
		}
	}
}

// move moves a few tokens in one transaction. It returns false after power has failed.
func (p *diskProbe) move(rng *rand.Rand, name func(int) string, queues int) bool {
	p.t.Helper()
	for range 1 + rng.IntN(4) {
		p.send(1, &amqp.BasicGet{Queue: name(rng.IntN(queues))})
		_, m := p.method()
		got, ok := m.(*amqp.BasicGetOK)
		if !ok {
			continue
		}
		_, body := p.content(1)
		p.publish(1, kept(name(rng.IntN(queues)), body))
		p.send(1, &amqp.BasicAck{DeliveryTag: got.DeliveryTag})
	}
	p.send(1, &amqp.TxCommit{})
	_, m := p.method()
	_, ok := m.(*amqp.TxCommitOK)
	return ok
}

// The disk fails for a shard. Channels that use its durable queues are closed, and the queues stop; queues in memory go on. A restart finds
// everything that was durable.
func TestStoppedShard(t *testing.T) {
	disk := crashfs.New(1)
	p := onDisk(t, disk)
	for id := uint16(1); id <= 9; id++ {
		p.channel(id)
	}
	p.keep(1, "a")
	do[*amqp.QueueDeclareOK](p.probe, 1, &amqp.QueueDeclare{Queue: "b"})
	do[*amqp.QueueBindOK](p.probe, 1, &amqp.QueueBind{Queue: "a", Exchange: "amq.fanout"})
	do[*amqp.QueueBindOK](p.probe, 1, &amqp.QueueBind{Queue: "b", Exchange: "amq.fanout"})
	do[*amqp.ConfirmSelectOK](p.probe, 2, &amqp.ConfirmSelect{})
	text := "INTERNAL_ERROR - queue 'a' in vhost '/' is stopped: shard 1 failed, see the broker logfile"

	// One consumer has no credit, so that messages are ready.
	do[*amqp.BasicQosOK](p.probe, 3, &amqp.BasicQos{PrefetchCount: 1})
	p.consume(3, "a", "c")
	p.publish(1, published{key: "a", body: "transient"})
	p.delivered(3, "transient")
	p.confirmed(2, kept("a", "1"), kept("a", "2"), kept("b", "1"))

	disk.Inject(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSync && strings.HasPrefix(op.Name, "00001-") {
			return syscall.EIO
		}
		return nil
	})
	p.publish(2, published{exchange: "amq.fanout", body: "both", props: kept("", "").props})
	p.sync()
	if got := fmt.Sprint(p.store.Alarms()); got != "[shard 1]" {
		t.Errorf("alarms: got %s", got)
	}
	p.conn.Tick(p.now)
	p.feed(nil)
	p.closed(2, 541, "INTERNAL_ERROR - messages could not be stored, see the broker logfile")
	p.closed(3, 541, text)
	p.silent()

	p.publish(4, published{key: "a", body: "transient"})
	p.closed(4, 541, text)
	p.send(5, &amqp.BasicGet{Queue: "a"})
	p.closed(5, 541, text)
	p.send(6, &amqp.BasicConsume{Queue: "a"})
	p.closed(6, 541, text)
	p.send(7, &amqp.QueueDeclare{Queue: "a", Durable: true})
	p.closed(7, 541, text)
	p.send(8, &amqp.QueueDeclare{Queue: "a", Passive: true})
	p.closed(8, 541, text)
	p.send(9, &amqp.QueuePurge{Queue: "a"})
	p.closed(9, 541, text)
	p.channel(9)
	do[*amqp.TxSelectOK](p.probe, 9, &amqp.TxSelect{})
	p.publish(9, published{exchange: "amq.fanout", body: "both"})
	p.closed(9, 541, text)

	p.channel(2)
	do[*amqp.ConfirmSelectOK](p.probe, 2, &amqp.ConfirmSelect{})
	p.confirmed(2, kept("b", "2"))
	p.send(2, &amqp.QueueDeclare{Queue: "c", Durable: true})
	p.closed(2, 541, "INTERNAL_ERROR - queue 'c' in vhost '/' is stopped: shard 1 failed, see the broker logfile")
	p.end()

	disk = disk.Kill()
	p = onDisk(t, disk)
	if got := p.contents("a"); len(got) < 2 || got[0] != "1" || got[1] != "2" {
		t.Errorf("a restart finds %v in the shard that failed", got)
	}
	p.end()
}

// confirmed publishes messages and waits for their confirms.
func (p *diskProbe) confirmed(channel uint16, ms ...published) {
	p.t.Helper()
	p.publish(channel, ms...)
	p.sync()
	p.feed(nil)
	if got := p.confirms(channel); got == "" || strings.Contains(got, "-") {
		p.t.Errorf("confirms: got %q", got)
	}
}

// sync waits until every message published so far has been stored or has failed, and the queues know.
func (p *diskProbe) sync() {
	v, _ := p.store.VHost("/")
	for _, s := range v.Queues() {
		if r := s.Config().Storage; r != nil {
			_ = r.Journal.(interface{ Sync() error }).Sync() // a shard may have failed
			if r.Journal.Err() != nil {
				v.StopShard(r.Shard)
			}
		}
	}
}
