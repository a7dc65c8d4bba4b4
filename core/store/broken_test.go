package store

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A disk that cannot be written any more ends its shard, and no other.
func TestBrokenShard(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk, func(o *Options) { o.Shards = 2 })
	_, err := k.AddVHost("other", vhost.Metadata{})
	must(t, err)
	first, second := k.declare("a"), k.in("other").declare("b")
	k.put(first, "1")
	k.put(second, "1")
	serving := &server{stopped: make(chan error, 1)}
	must(t, first.Do(func(q *queue.Queue, now hook.Instant) {
		must(t, q.AddConsumer(now, &queue.Consumer{Queue: first, Sink: serving, Prefetch: 1}))
	}))
	before := k.v.Generation()
	bad := first.Config().Storage.Journal.(*shard)
	disk.Inject(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSync && strings.HasPrefix(op.Name, fmt.Sprintf("%05d-", bad.number)) {
			return syscall.EIO
		}
		return nil
	})
	if err := <-send(first, "2"); !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v, want an input/output error", err)
	}
	if err := <-serving.stopped; err.Error() != fmt.Sprintf("queue 'a' in vhost '/' is stopped: shard %d failed", bad.number) {
		t.Errorf("the consumer was told %v", err)
	}
	if err := <-k.memory(first, "transient"); !errors.Is(err, syscall.EIO) {
		t.Errorf("a transient message: got %v, want an input/output error", err)
	}
	k.put(second, "2")
	if got, want := fmt.Sprint(k.Alarms()), fmt.Sprintf("[shard %d]", bad.number); got != want {
		t.Errorf("alarms: got %s, want %s", got, want)
	}
	if got := k.log.Find("a log failed"); !strings.Contains(got, fmt.Sprintf("shard=%d", bad.number)) {
		t.Errorf("logged %q", got)
	}
	_, err = k.v.CheckQueue("a", 0, false)
	var refused *vhost.Error
	if !errors.As(err, &refused) || refused.Kind != vhost.Stopped || !errors.Is(err, syscall.EIO) {
		t.Errorf("a look at the queue: got error %v", err)
	}
	if _, _, err := k.v.Route("", &parts.Message{Key: "a"}, nil); !errors.As(err, &refused) || refused.Kind != vhost.Stopped {
		t.Errorf("a route to the queue: got error %v", err)
	}
	if k.v.Generation() == before {
		t.Error("routes to the queue are good as before")
	}
	if _, err := k.v.DeclareQueue(vhost.QueueDeclare{Name: "c", Durable: true}); !errors.Is(err, syscall.EIO) {
		t.Errorf("a new queue in the broken shard: got %v, want an input/output error", err)
	}
	if _, err := k.v.DeleteQueue("a", 0, false, false); !errors.Is(err, syscall.EIO) {
		t.Errorf("deleted in the broken shard: got %v, want an input/output error", err)
	}
	if _, err := k.DeleteVHost(DefaultVHost); !errors.Is(err, syscall.EIO) {
		t.Errorf("deleted a vhost in the broken shard: got %v, want an input/output error", err)
	}
	for _, name := range []string{"c", "d", "e"} {
		_, err := k.AddVHost(name, vhost.Metadata{})
		must(t, err)
		if d := k.in(name).declare("q").Config().Storage.Journal.(*shard); d == bad {
			t.Errorf("a new vhost is in %v, which is broken", d)
		}
	}
	k.end()
}

// When there is no other shard, nothing durable can be declared.
func TestTheOnlyShardIsBroken(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk)
	q := k.declare("q")
	k.put(q, "1")
	disk.Inject(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpWrite && strings.HasPrefix(op.Name, "00001-") {
			return syscall.EIO
		}
		return nil
	})
	if err := <-send(q, "2"); !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v, want an input/output error", err)
	}
	_, err := k.v.DeclareQueue(vhost.QueueDeclare{Name: "r", Durable: true})
	if got := fmt.Sprint(err); got != "queue 'r' in vhost '/' is stopped: shard 1 failed, see the broker logfile" {
		t.Errorf("got error %s", got)
	}
	d, err := k.v.DeclareQueue(vhost.QueueDeclare{Name: "passing"})
	must(t, err)
	k.put(d.Mailbox, "in memory")
	disk.Inject(nil)
	k.end()
	k = open(t, disk)
	k.wantMessages("q", "1")
	k.close()
}

// When the registry cannot be written any more, no vhost, user or parameter can be changed; queues go on.
func TestBrokenRegistry(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk)
	q := k.declare("q")
	disk.Inject(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSync && strings.HasPrefix(op.Name, "00000-") {
			return syscall.EIO
		}
		return nil
	})
	for range 2 {
		if _, err := k.AddVHost("v", vhost.Metadata{}); !errors.Is(err, syscall.EIO) {
			t.Errorf("got error %v", err)
		}
		if _, err := k.DeleteVHost(DefaultVHost); !errors.Is(err, syscall.EIO) {
			t.Errorf("got error %v", err)
		}
	}
	k.declare("r")
	if got := fmt.Sprint(k.Alarms()); got != "[shard 0]" {
		t.Errorf("alarms: got %s", got)
	}
	k.put(q, "1")
	disk.Inject(nil)
	k.end()
	k = open(t, disk)
	k.wantMessages("q", "1")
	k.close()
}
