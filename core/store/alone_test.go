package store

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// A broker alone is a cluster of one: what it has is there after a restart, with definitions and messages of a vhost in one log, and users
// and placements in the registry.
func TestAlone(t *testing.T) {
	dir := vfs.Dir(t.TempDir())
	for n := range 3 {
		k := open(t, dir, func(o *Options) { o.Shards = 2 })
		if n == 0 {
			_, err := k.AddVHost("b", vhost.Metadata{Description: "another"})
			must(t, err)
			k.declare("q")
		}
		if got := k.in("b").v.Metadata().Description; got != "another" {
			t.Errorf("start %d: the vhost is %q", n, got)
		}
		if _, err := k.SetGlobalParameter(strconv.Itoa(n), []byte("1")); err != nil {
			t.Error(err)
		}
		if got := len(k.GlobalParameters()); got != n+1 {
			t.Errorf("start %d: there are %d parameters", n, got)
		}
		if n > 0 {
			k.wantMessages("q", strconv.Itoa(n-1))
		}
		k.put(k.queue("q"), strconv.Itoa(n))
		if here, _ := k.Registry().Placement("b"); here.Shard != 2 {
			t.Errorf("start %d: b is in shard %d", n, here.Shard)
		}
		k.close()
	}
}

// slowShardFS takes a second to open a file of shard 2.
type slowShardFS struct{ vfs.FS }

func (s slowShardFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	if strings.HasPrefix(name, "00002-") {
		time.Sleep(time.Second) // in a bubble: everything else comes to rest first
	}
	return s.FS.Open(name, mode)
}

// A start that fails at a later shard ends, although the log of the first one has asked for relocation: its queues are not started yet, and
// relocation waited for them without end.
func TestAStartThatFailsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := crashfs.New(1)
		k := open(t, disk, func(o *Options) { o.Shards, o.SegmentSize = 2, 16<<20 })
		k.declare("q")
		_, err := k.AddVHost("b", vhost.Metadata{})
		must(t, err)
		for range 20 {
			k.put(k.queue("q"), "stays", strings.Repeat("x", 100_000))
		}
		for range 2 * 19 {
			k.take(k.queue("q"))
		}
		k.shard(2).Commit([]byte{255}, nil, nil) // no operation
		must(t, k.shard(2).Sync())
		k.close()
		o := options(t, slowShardFS{disk}, new(logtest.Log))
		o.Shards, o.Extent, o.Log = 2, 4096, slog.New(slog.DiscardHandler)
		if s, err := Open(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), "shard 2: ") {
			t.Errorf("the store opened as %v, with %v", s, err)
		}
	})
}

// fillLog publishes and declares until a log has no space for anything any more.
func (k *kept) fillLog(disk *crashfs.FS) {
	k.t.Helper()
	q := k.declare("filled")
	disk.SetSpace(0)
	waits := func(do func() error) bool {
		done := make(chan error, 1)
		go func() { done <- do() }()
		synctest.Wait()
		if len(done) == 0 {
			return true
		}
		must(k.t, <-done)
		return false
	}
	waiting := false
	for !waiting {
		waiting = waits(func() error { return <-send(q, strings.Repeat("x", 100_000)) })
	}
	waiting = false
	for n := 0; !waiting; n++ {
		waiting = waits(func() error {
			_, err := k.v.DeclareQueue(vhost.QueueDeclare{Name: fmt.Sprint(n, strings.Repeat("x", 200)), Durable: true})
			return err
		})
	}
}

// A vhost was added while its log had no space for anything. The broker could not be stopped then, and after a kill it could not be started:
// both waited for the vhost.
func TestVHostWaitsForSpaceAndNothingElseDoes(t *testing.T) {
	for _, killed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			disk := crashfs.New(1)
			k := open(t, disk)
			k.fillLog(disk)
			_, err := k.AddVHost("v", vhost.Metadata{})
			must(t, err)
			began := time.Now()
			if killed {
				disk = disk.Kill()
				disk.SetSpace(0)
				k.end()
			} else {
				k.close()
			}
			if d := time.Since(began); d > time.Second {
				t.Errorf("it took %v to end", d)
			}

			k = open(t, disk)
			defer k.close()
			if _, ok := k.VHost("v"); ok {
				t.Fatal("there was space for the vhost")
			}
			disk.SetSpace(1 << 30)
			time.Sleep(time.Minute)
			if _, ok := k.VHost("v"); !ok {
				t.Error("there is space, but not the vhost")
			}
		})
	}
}
