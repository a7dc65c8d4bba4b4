package store

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // disks are in memory, and collecting them is a third of the work otherwise
	goleak.VerifyTestMain(m)
}

// kept is an opened store with its default vhost.
type kept struct {
	*Store
	t   *testing.T
	v   *vhost.VHost
	log *logtest.Log
}

func options(t *testing.T, dir vfs.FS, log *logtest.Log) Options {
	t.Helper()
	c, err := chain.New(nil, chain.Options{})
	must(t, err)
	return Options{
		Dir: dir, SegmentSize: 1 << 20, Shards: 1, Chain: c, Clock: clock.New(), Log: slog.New(slog.NewTextHandler(log, nil)),
	}
}

func open(t *testing.T, dir vfs.FS, change ...func(*Options)) *kept {
	t.Helper()
	log := new(logtest.Log)
	o := options(t, dir, log)
	for _, f := range change {
		f(&o)
	}
	s, err := Open(t.Context(), o)
	must(t, err)
	v, ok := s.VHost(DefaultVHost)
	if !ok {
		t.Fatal("there is no default vhost")
	}
	return &kept{s, t, v, log}
}

// shard returns a shard of vhosts.
func (k *kept) shard(number uint32) *shard { return k.cluster.seats[number-1].shard() }

// end ends a test's use of the store, whatever state it is in.
func (k *kept) end() {
	k.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = k.Close(ctx) // the test may have broken it
}

func (k *kept) close() {
	k.t.Helper()
	must(k.t, k.Close(k.t.Context()))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (k *kept) declare(name string) *queue.Mailbox {
	k.t.Helper()
	d, err := k.v.DeclareQueue(vhost.QueueDeclare{Name: name, Durable: true})
	must(k.t, err)
	return d.Mailbox
}

func (k *kept) queue(name string) *queue.Mailbox {
	k.t.Helper()
	s, err := k.v.Queue(name, 0)
	must(k.t, err)
	return s
}

// outcome is a [queue.Publisher] that reports the result of a batch once.
type outcome chan error

func (o outcome) Confirmed(*queue.Batch)           { o <- nil }
func (o outcome) Failed(_ *queue.Batch, err error) { o <- err }

// send publishes persistent messages as one batch.
func send(s *queue.Mailbox, bodies ...string) outcome {
	o := make(outcome, 1)
	b := queue.NewBatch()
	for i, body := range bodies {
		b.Messages = append(b.Messages, queue.Message{
			Routing: &queue.RoutingInfo{Key: "k"}, Props: []byte{0, 0}, Body: []byte(body), Seq: uint64(i + 1), Flags: queue.Persistent,
		})
	}
	b.Publisher = o
	s.Publish(b)
	return o
}

// memory publishes a message that is not persistent.
func (k *kept) memory(s *queue.Mailbox, body string) outcome {
	k.t.Helper()
	o := make(outcome, 1)
	b := queue.NewBatch()
	b.Messages = append(b.Messages, queue.Message{Routing: &queue.RoutingInfo{Key: "k"}, Props: []byte{0, 0}, Body: []byte(body), Seq: 1})
	b.Publisher = o
	s.Publish(b)
	return o
}

// server is a consumer that is told when its queue stops.
type server struct{ stopped chan error }

func (*server) Deliver(_ hook.Instant, _ *queue.Consumer, ds []queue.Delivery) int { return len(ds) }

func (*server) Capacity(*queue.Consumer) (int, int) { return 1 << 10, 1 << 20 }

func (*server) Takes(*queue.Consumer, *queue.Delivery) bool { return true }
func (*server) Cancelled(*queue.Consumer)                   {}
func (s *server) Stopped(_ *queue.Consumer, why *queue.StoppedError) {
	s.stopped <- why
}

// put publishes a persistent message and waits until it is confirmed.
func (k *kept) put(s *queue.Mailbox, bodies ...string) {
	k.t.Helper()
	must(k.t, <-send(s, bodies...))
}

// take fetches a message and acknowledges it; "" if there is none.
func (k *kept) take(s *queue.Mailbox) (body string) {
	k.t.Helper()
	must(k.t, s.Do(func(q *queue.Queue, now hook.Instant) {
		q.Get(now, &queue.Consumer{Queue: s, NoAck: true}, func(d queue.Delivery, _ int) { body = string(d.Body) })
	}))
	return body
}

// wantMessages takes everything from a queue.
func (k *kept) wantMessages(name string, want ...string) {
	k.t.Helper()
	var got []string
	for s := k.queue(name); ; {
		body := k.take(s)
		if body == "" {
			break
		}
		got = append(got, body)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		k.t.Errorf("in %s: got %v, want %v", name, got, want)
	}
}

func table(key string, value any) amqp.Table { return amqp.Table{{Key: key, Value: value}} }
