package store

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// spacious is a disk that says how much space it has left.
type spacious struct {
	vfs.FS
	free atomic.Int64
}

func (s *spacious) Space() (vfs.Space, error) {
	return vfs.Space{Path: "/data", Free: s.free.Load(), Total: 1 << 40}, nil
}

// Publishers wait while the disk has less space left than the limit, which can be changed while the broker runs. There was
// no such limit: the alarm came when a log had no space any more, with nothing left for anybody else.
func TestDiskLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &spacious{FS: crashfs.New(1)}
		const limit = 50_000_000
		disk.free.Store(limit + 1<<40)
		k := open(t, disk, func(o *Options) { o.DiskLimit = limit })
		defer k.close()
		synctest.Wait() // the logs make segments for later
		var set int64   // aside by the logs
		for _, l := range k.Logs() {
			set += l.Disk.SpareBytes
		}
		is := func(want string) {
			t.Helper()
			if got := fmt.Sprint(k.Alarms(), k.Full() != nil); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		is("[] false")
		disk.free.Store(limit - set - 1)
		time.Sleep(2 * maxInterval)
		is("[disk] true")
		if got := k.Shortage(); got == nil || *got != (Shortage{Path: "/data", Free: limit - 1, Needed: limit}) {
			t.Errorf("got shortage %+v", got)
		}
		over := k.Full()
		disk.free.Store(limit - set)
		<-over
		is("[] false")

		k.SetDiskLimit(limit + 1)
		is("[disk] true")
		k.SetDiskLimit(0)
		is("[] false")
		disk.free.Store(0)
		time.Sleep(2 * maxInterval)
		is("[] false")
		k.SetDiskLimit(-5)
		is("[] false")
		if k.DiskLimit() != 0 {
			t.Errorf("the limit is %d", k.DiskLimit())
		}
	})
}

// A disk that could soon be full is looked at often.
func TestNextLook(t *testing.T) {
	for _, tt := range []struct {
		free int64
		want time.Duration
	}{
		{0, lowInterval},
		{99, lowInterval},
		{100, minInterval},
		{100 + fillRate, time.Second},
		{1 << 40, maxInterval},
	} {
		if got := checkInterval(tt.free, 100); got != tt.want {
			t.Errorf("with %d bytes: got %v, want %v", tt.free, got, tt.want)
		}
	}
}
