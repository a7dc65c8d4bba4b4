package drain

import (
	"context"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outcome is a [queue.Publisher] that reports the result of a batch once.
type outcome chan error

func (o outcome) Confirmed(*queue.Batch)           { o <- nil }
func (o outcome) Failed(_ *queue.Batch, err error) { o <- err }

// publish publishes persistent messages, and returns the result of the batch.
func publish(m *queue.Mailbox, n int) error {
	o, b := make(outcome, 1), queue.NewBatch()
	for range n {
		b.Messages = append(b.Messages, queue.Message{Routing: &queue.RoutingInfo{Key: "k"}, Props: []byte{0, 0}, Flags: queue.Persistent})
	}
	b.Publisher = o
	m.Publish(b)
	return <-o
}

// A drain of a broker whose log had failed waited until its time was over for unacknowledged messages, although no consumer could settle
// them.
func TestNothingIsLeftInStoppedQueues(t *testing.T) {
	c, err := chain.New(nil, chain.Options{})
	if err != nil {
		t.Fatal(err)
	}
	disk := crashfs.New(1)
	kept, err := store.Open(t.Context(), store.Options{Dir: disk, SegmentSize: 1 << 20, Shards: 1, Chain: c, Clock: clock.New(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close(context.WithoutCancel(t.Context())) }) // its log has failed
	v, _ := kept.VHost(store.DefaultVHost)
	d, err := v.DeclareQueue(vhost.QueueDeclare{Name: "q", Durable: true})
	if err == nil {
		err = publish(d.Mailbox, 3)
	}
	if err == nil {
		err = d.Mailbox.Do(func(q *queue.Queue, now hook.Instant) {
			q.Get(now, &queue.Consumer{Queue: d.Mailbox}, func(queue.Delivery, int) {})
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := count(kept.VHosts()); got.Left != 1 || len(got.places) != 1 || got.places[0].kept() != 2 {
		t.Errorf("got %+v, want a message that is left and 2 that are kept", got)
	}
	disk.Inject(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSync && !strings.HasPrefix(op.Name, "00000-") {
			return syscall.EIO
		}
		return nil
	})
	if publish(d.Mailbox, 1) == nil {
		t.Fatal("a message was confirmed although the log has failed")
	}
	_ = d.Mailbox.Do(func(*queue.Queue, hook.Instant) {}) // in this turn the queue notices that
	if got := count(kept.VHosts()); got.Left != 0 || len(got.places) != 1 || got.places[0].kept() < 3 {
		t.Errorf("got %+v, want messages that are kept only", got)
	}
}
