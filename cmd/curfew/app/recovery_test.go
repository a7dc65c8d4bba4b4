package app

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	wire "github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// kept is a store with the plugins of the default configuration, in a bubble with a clock of its own.
type kept struct {
	*store.Store
	t *testing.T
	v *vhost.VHost
}

func reopen(t *testing.T, disk vfs.FS) *kept {
	t.Helper()
	c, err := (&app{plugins: allPlugins(nil)}).load("", nil, chain.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Options{
		Dir: disk, SegmentSize: 1 << 20, Shards: 1, Chain: c.chain, Clock: clock.New(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	v, _ := s.VHost(store.DefaultVHost)
	return &kept{s, t, v}
}

func (k *kept) stop() {
	k.t.Helper()
	if err := k.Close(k.t.Context()); err != nil {
		k.t.Error(err)
	}
}

// declare declares a durable queue; args are alternating names and values.
func (k *kept) declare(name string, args ...any) *queue.Mailbox {
	k.t.Helper()
	var t wire.Table
	for i := 0; i < len(args); i += 2 {
		t = append(t, wire.Field{Key: fmt.Sprint(args[i]), Value: args[i+1]})
	}
	d, err := k.v.DeclareQueue(vhost.QueueDeclare{Name: name, Durable: true, Args: t})
	if err != nil {
		k.t.Fatal(err)
	}
	return d.Mailbox
}

func put(s *queue.Mailbox, body string) {
	b := queue.NewBatch()
	b.Messages = append(b.Messages, queue.Message{
		Routing: &queue.RoutingInfo{Key: "k"}, Props: []byte{0, 0}, Body: []byte(body), Flags: queue.Persistent,
	})
	s.Publish(b)
}

// ready is how many messages a queue has, -1 if it does not exist.
func (k *kept) ready(name string) (n int) {
	k.t.Helper()
	synctest.Wait()
	s, err := k.v.Queue(name, 0)
	if err != nil {
		return -1
	}
	if s.Do(func(q *queue.Queue, _ hook.Instant) { n = q.Stats().Ready }) != nil {
		return -1
	}
	return n
}

func (k *kept) want(when, name string, want int) {
	k.t.Helper()
	if got := k.ready(name); got != want {
		k.t.Errorf("%s: %d messages in %s, want %d", when, got, name, want)
	}
}

// A deadline is a point in time: a restart does not move it.
func TestDeadlinesSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := crashfs.New(1)
		k := reopen(t, disk)
		q := k.declare("q", "x-message-ttl", int32(60_000), "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "late")
		k.declare("late")
		put(q, "first")
		time.Sleep(30 * time.Second)
		put(q, "second")
		time.Sleep(10 * time.Second)
		k.stop()

		time.Sleep(10 * time.Second)
		k = reopen(t, disk)
		time.Sleep(9 * time.Second)
		k.want("after 59 s", "q", 2)
		time.Sleep(time.Second + time.Millisecond)
		k.want("after 60 s", "q", 1)
		k.want("after 60 s", "late", 1)
		k.stop()

		time.Sleep(time.Minute)
		k = reopen(t, disk)
		k.want("when it is overdue", "q", 0)
		k.want("when it is overdue", "late", 2)
		k.stop()

		k = reopen(t, disk)
		k.want("at the end", "q", 0)
		k.want("at the end", "late", 2)
		k.stop()
	})
}

// slowDisk takes a minute for every read.
type slowDisk struct{ *crashfs.FS }

func (d slowDisk) Open(name string, mode vfs.Mode) (vfs.File, error) {
	f, err := d.FS.Open(name, mode)
	return slowFile{f}, err
}

type slowFile struct{ vfs.File }

func (f slowFile) ReadAt(p []byte, off int64) (int, error) {
	time.Sleep(time.Minute)
	return f.File.ReadAt(p, off)
}

// A recovery that takes longer than a lease does not end it.
func TestLeaseOutlastsRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := crashfs.New(1)
		k := reopen(t, disk)
		put(k.declare("q", "x-expires", int32(30_000)), "a")
		k.stop()
		k = reopen(t, slowDisk{disk})
		k.want("after a slow recovery", "q", 1)
		time.Sleep(31 * time.Second)
		k.want("half a minute later", "q", -1)
		k.stop()
	})
}

// A queue's lease starts again with the broker: the queue could not be used while there was no broker.
func TestLeasesStartAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := crashfs.New(1)
		k := reopen(t, disk)
		put(k.declare("q", "x-expires", int32(60_000)), "a")
		time.Sleep(50 * time.Second)
		k.stop()
		time.Sleep(time.Hour)
		k = reopen(t, disk)
		time.Sleep(59 * time.Second)
		k.want("before its time", "q", 1)
		time.Sleep(2 * time.Minute)
		k.want("unused for a minute", "q", -1)
		k.stop()
		k = reopen(t, disk)
		k.want("after it expired", "q", -1)
		k.stop()
	})
}
