package store

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/core/wlog"
)

// fill puts messages of 1 KiB in a queue.
func (k *kept) fill(q *queue.Mailbox, messages int) {
	k.t.Helper()
	body := strings.Repeat("x", 1<<10)
	for range messages {
		must(k.t, <-send(q, body))
	}
}

// pass lets time pass, and all that is due happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A log that is long is restored while another node owns the shard, and only the end of it afterwards. When the log is short again,
// or the shard is this node's, nothing of that is left in memory.
func TestStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := slab.Used()
		m := newTeam(t, 2, func(o *Options) {
			o.Extent, o.standby = 16<<10, standbyPace{begin: 100 << 10, step: 10 << 10}
		})
		m.registry.in(1, "/")
		one, two := m.nodes[0], m.nodes[1]
		m.own(1, one)
		k := one.serving("/")
		q := k.declare("q")
		k.fill(q, 50)
		pass(5 * time.Second)
		if b := two.cluster.seats[0].standby; b.state != nil {
			t.Error("a short log is restored")
		}
		k.fill(q, 100)
		pass(5 * time.Second)
		b := two.cluster.seats[0].standby
		if b.state == nil {
			t.Fatal("a long log is not restored")
		}
		if left := two.Backlog(1, b.state.replay.Last()); left != 0 {
			t.Errorf("%d bytes are left to be restored after a while", left)
		}
		k.fill(q, 1)
		m.own(1, two)
		if b.state != nil {
			t.Error("the standby has what the owner has")
		}
		if s := two.log.String(); !strings.Contains(s, "messages=151 entries=1 ") && !strings.Contains(s, "messages=151 entries=0 ") {
			t.Errorf("it was restored as\n%s", s)
		}
		k = two.serving("/")
		q = k.queue("q")
		pass(5 * time.Second)
		if one.cluster.seats[0].standby.state == nil {
			t.Error("the former owner does not restore the log")
		}
		for range 140 {
			k.take(q)
		}
		must(t, k.cluster.shards()[0].Sync())
		pass(5 * time.Second)
		if one.cluster.seats[0].standby.state != nil {
			t.Error("a log that is short again is still restored")
		}
		m.own(1, one)
		if got := len(one.serving("/").all("q")); got != 11 {
			t.Errorf("%d messages are left, want 11", got)
		}
		m.close()
		if now := slab.Used(); now != memory {
			t.Errorf("%d bytes of memory are held by nodes that have ended", now-memory)
		}
	})
}

// all takes all messages of a queue.
func (k *kept) all(name string) (all []string) {
	k.t.Helper()
	q := k.queue(name)
	for body := k.take(q); body != ""; body = k.take(q) {
		all = append(all, body)
	}
	return all
}

// A node that was cut off while entries were trimmed forgets what it has restored: the settlement of that may be gone.
func TestStandbyBehindATrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTeam(t, 2, func(o *Options) { o.Extent, o.standby = 16<<10, eager })
		defer m.close()
		m.registry.in(1, "/")
		one, two := m.nodes[0], m.nodes[1]
		m.own(1, one)
		k := one.serving("/")
		k.declare("gone")
		k.fill(k.queue("gone"), 10)
		k.fill(k.declare("q"), 100)
		pass(time.Second)
		two.SetStalled(true)
		k.all("q")
		_, err := k.v.DeleteQueue("gone", 0, false, false)
		must(t, err)
		for range 50 { // the front of the log goes with what is written behind it
			k.fill(k.queue("q"), 2)
			k.all("q")
		}
		k.put(k.queue("q"), "last")
		must(t, k.cluster.shards()[0].Sync())
		synctest.Wait()
		two.SetStalled(false)
		b := two.cluster.seats[0].standby
		if b.state == nil || !errors.Is(two.Replay(t.Context(), 1, b.state.replay.Last(), nil), wlog.ErrTrimmed) {
			t.Fatal("the node has not missed what was trimmed")
		}
		m.own(1, two)
		k = two.serving("/")
		k.wantMessages("q", "last")
		if k.v.Mailbox("gone") != nil {
			t.Error("a queue is there that was deleted")
		}
		if s := two.log.String(); !strings.Contains(s, "bytes_before=0") {
			t.Errorf("it has used what was void:\n%s", s)
		}
	})
}

// flaky is an engine that cannot read the entries of a shard at times.
type flaky struct {
	wlog.Cluster
	broken atomic.Pointer[error]
	stuck  atomic.Pointer[chan struct{}] // nil = it answers
}

func (f *flaky) Replay(ctx context.Context, shard uint32, after wlog.Index, fn func(at wlog.Index, entry []byte) error) error {
	if stuck := f.stuck.Load(); stuck != nil {
		<-*stuck
	}
	if err := f.broken.Load(); err != nil {
		return *err
	}
	return f.Cluster.Replay(ctx, shard, after, fn)
}

// A node that cannot read what others own says so once, and goes on as soon as it can. A disk that does not answer does not keep it
// from ending.
func TestStandbyCannotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, stuck, disk := errors.New("a bad sector"), make(chan struct{}), &flaky{}
		disk.broken.Store(&bad)
		m := newTeam(t, 1)
		two := m.join(func(o *Options) {
			disk.Cluster, o.standby = o.Cluster, eager
			o.Cluster = disk
		})
		m.registry.in(1, "/")
		m.own(1, m.nodes[0])
		k := m.nodes[0].serving("/")
		k.put(k.declare("q"), "a")
		pass(10 * time.Minute)
		if got := strings.Count(two.log.String(), "a bad sector"); got != 1 {
			t.Errorf("it was said %d times:\n%s", got, two.log.String())
		}
		disk.broken.Store(nil)
		pass(time.Minute)
		if two.cluster.seats[0].standby.state == nil {
			t.Error("a disk that works again is not read")
		}
		disk.stuck.Store(&stuck)
		k.put(k.queue("q"), "b")
		pass(time.Minute)
		must(t, two.Store.Close(t.Context()))
		close(stuck)
		synctest.Wait()
		m.close()
	})
}
