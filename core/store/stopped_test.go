package store

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A queue that a panic had stopped kept the log from being trimmed until the broker was restarted, also after it was deleted: the disk
// filled up for all.
func TestADeletedQueueThatWasStoppedLetsGoOfTheLog(t *testing.T) {
	for name, c := range map[string]stopping{
		"":           {shards: 1},
		"two shards": {shards: 2},
		"restarted":  {shards: 1, restarted: true},
		"in a purge": {shards: 1, do: func(q *queue.Queue, now hook.Instant) { q.Purge(now) }},
		"as it fetches": {shards: 1, do: func(q *queue.Queue, now hook.Instant) {
			q.Get(now, &queue.Consumer{NoAck: true}, func(queue.Delivery, int) {})
		}},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { letsGo(t, c) }) })
	}
}

// stopping is how a queue stops: it panics after it has done something.
type stopping struct {
	shards    int
	restarted bool // before
	do        func(q *queue.Queue, now hook.Instant)
}

func letsGo(t *testing.T, c stopping) {
	t.Helper()
	disk := crashfs.New(1)
	const body, rounds, extent = 16 << 10, 120, 128 << 10
	set := func(o *Options) { o.Shards, o.Extent = c.shards, extent }
	k := open(t, disk, set)
	s, other := k.declare("s"), k.declare("other")
	for other.Config().Storage.Shard != s.Config().Storage.Shard {
		other = k.declare("other" + strings.Repeat("x", len(k.v.Queues())))
	}
	name := other.Config().Name
	k.put(s, "1", "2", "3")
	k.put(other, "kept")
	if c.restarted {
		k.close()
		k = open(t, disk, set)
		s, other = k.queue("s"), k.queue(name)
	}
	k.take(s)
	if err := s.Do(func(q *queue.Queue, now hook.Instant) {
		if q.Stopped() != nil {
			return
		}
		if c.do != nil {
			c.do(q, now)
		}
		panic("a fault")
	}); err != nil {
		t.Fatal(err)
	}
	j := k.shard(s.Config().Storage.Shard)
	message := strings.Repeat("x", body)
	turnOver := func() {
		for range rounds {
			k.put(other, message)
			k.take(other) // the oldest
		}
		must(t, j.Sync())
	}
	turnOver()
	if st := j.Stats(); st.LogBytes < rounds*body {
		t.Errorf("the stopped queue's messages are lost: %d bytes of log are left", st.LogBytes)
	}
	if _, err := k.v.DeleteQueue("s", 0, false, false); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	turnOver()
	time.Sleep(time.Second) // the log is trimmed aside
	if st := j.Stats(); st.LogBytes > rounds*body*3/4 {
		t.Errorf("of %d bytes, %d are left, of which %d are live", st.Bytes, st.LogBytes, st.Live)
	}
	k.put(other, "last")
	after := disk.LosePower()
	k.end()
	k = open(t, after, set)
	defer k.end()
	if k.v.Mailbox("s") != nil {
		t.Error("the deleted queue is back")
	}
	k.wantMessages(name, message, "last")
}

// So did a deleted exchange, by what it held.
func TestADeletedExchangeThatWasStoppedLetsGoOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := crashfs.New(1)
		k := open(t, disk, clerks(t, 1))
		k.declare("q")
		k.exchange("x")
		j := k.shard(1)
		must(t, j.Sync())
		before := j.Stats().Live
		for range 3 {
			k.schedule(60_000, strings.Repeat("held", 100), amqp.Properties{}, true)
		}
		s, err := k.v.Schedule("x")
		must(t, err)
		must(t, s.Do(func(q *queue.Queue, _ hook.Instant) {
			if q.Stopped() == nil {
				panic("a fault")
			}
		}))
		if j.Stats().Live <= before {
			t.Error("the stopped exchange's messages are lost")
		}
		must(t, k.v.DeleteExchange("x", false))
		synctest.Wait()
		must(t, j.Sync())
		const deletion = 200 // bytes that the definition has, at most
		if live := j.Stats().Live; live > before+deletion {
			t.Errorf("%d bytes are live, want %d", live, before)
		}
		after := disk.LosePower()
		k.end()
		k = open(t, after, clerks(t, 1))
		defer k.end()
		if _, err := k.v.Schedule("x"); err == nil {
			t.Error("the deleted exchange is back")
		}
	})
}
