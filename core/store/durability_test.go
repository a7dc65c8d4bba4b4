package store

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/seg"
)

// Every entry is synced, once, before anybody is told that it is durable; with flush none is.
func TestSyncsAreAppends(t *testing.T) {
	for _, tt := range []struct {
		durability seg.Durability
		perAppend  uint64
	}{{seg.Fsync, 1}, {seg.Flush, 0}} {
		disk := crashfs.New(1)
		k := open(t, disk, func(o *Options) { o.Durability = tt.durability })
		q, r := k.declare("q"), k.declare("r")
		must(t, k.shard(1).Sync())
		var syncs atomic.Uint64
		disk.Inject(func(op crashfs.Op) error {
			if op.Kind == crashfs.OpSync && strings.HasPrefix(op.Name, "00001-00000001.") {
				syncs.Add(1)
			}
			return nil
		})
		before := k.shard(1).Stats().Appends
		var wg sync.WaitGroup
		for n := range 4 {
			wg.Go(func() {
				for range 50 {
					s := []*queue.Mailbox{q, r}[n%2]
					if err := <-send(s, "message"); err != nil {
						t.Error(err)
					}
					k.take(s)
				}
			})
		}
		wg.Wait()
		must(t, k.shard(1).Sync())
		appends := k.shard(1).Stats().Appends - before
		if got := syncs.Load(); got != appends*tt.perAppend || appends < 50 {
			t.Errorf("durability %d: %d syncs of %d appends", tt.durability, got, appends)
		}
		disk.Inject(nil)
		k.close()
	}
}

// With durability: flush, a queue that was durable for long was gone after a loss of power, if definitions had been written
// again and given back to the disk shortly before.
func TestFlushKeepsDefinitionsThatWereDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(6) {
			disk := crashfs.New(seed)
			flush := func(o *Options) { o.Durability, o.SegmentSize = seg.Flush, 64<<10 }
			k := open(t, disk, flush)
			k.put(k.declare("stays"), "a message")
			long := table("x", strings.Repeat("x", 10_000))
			for size := int64(0); ; {
				_, err := k.v.DeclareQueue(vhost.QueueDeclare{Name: "comes and goes", Durable: true, Args: long})
				must(t, err)
				_, err = k.v.DeleteQueue("comes and goes", 0, false, false)
				must(t, err)
				synctest.Wait()
				now := k.shard(1).Stats().LogBytes
				if now < size {
					break // what was before was given back
				}
				size = now
			}
			disk = disk.LosePower()
			k.end()
			k = open(t, disk, flush)
			if k.v.Mailbox("stays") == nil {
				t.Errorf("seed %d: a durable queue is gone", seed)
			}
			k.close()
		}
	})
}

// With durability: flush, the definition of a queue was lost with the power, and the queue's number with it. The next queue got the
// number again, and with it the messages of the lost one, which lay in another log and were durable.
func TestFlushKeepsDefinitions(t *testing.T) {
	for seed := range uint64(20) {
		disk := crashfs.New(seed)
		flush := func(o *Options) { o.Durability = seg.Flush }
		k := open(t, disk, flush)
		k.put(k.declare("mine"), "a message")
		must(t, k.v.DeclareExchange(vhost.Exchange{Name: "x", Type: "fanout", Durable: true}, nil))
		disk = disk.LosePower()
		k.end()

		k = open(t, disk, flush)
		theirs := k.declare("theirs")
		if k.v.Mailbox("mine") == nil {
			t.Errorf("seed %d: a durable queue is gone", seed)
		}
		if !slices.ContainsFunc(k.v.Exchanges(), func(x vhost.Exchange) bool { return x.Name == "x" }) {
			t.Errorf("seed %d: a durable exchange is gone", seed)
		}
		k.close()
		k = open(t, disk.Kill(), flush)
		if got := k.take(k.queue(theirs.Config().Name)); got != "" {
			t.Errorf("seed %d: a new queue has %q of another", seed, got)
		}
		k.close()
	}
}
