package seg

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
)

func TestStats(t *testing.T) {
	for _, tc := range []struct {
		name       string
		durability Durability
	}{{"fsync", Fsync}, {"flush", Flush}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fsys := crashfs.New(1)
				o := small()
				o.Durability, o.first = tc.durability, o.SegmentSize
				s := openShard(t, fsys, o)
				defer s.close(t)
				before := s.stats(t)
				if before.Segments != 1 || before.Bytes != o.SegmentSize || before.Spares != 0 {
					t.Errorf("a new log has %+v", before)
				}
				fsys.Inject(func(op crashfs.Op) error {
					if op.Kind == crashfs.OpSync {
						time.Sleep(20 * time.Millisecond)
					}
					return nil
				})
				s.append(t, "x")
				after := s.stats(t)
				d := after.Syncs
				bucket := slices.Index(d.Bounds, .025)
				switch n := d.Counts[bucket] - before.Syncs.Counts[bucket]; {
				case tc.durability == Fsync && (n != 1 || d.Sum-before.Syncs.Sum < .02):
					t.Errorf("a sync of 20 ms: got %+v, before %+v", d, before.Syncs)
				case tc.durability == Flush && n != 0:
					t.Errorf("%d syncs, want none", n)
				}
			})
		})
	}
}

// Stats describes the files on the disk.
func TestStatsAreWhatIsOnTheDisk(t *testing.T) {
	fsys := crashfs.New(1)
	s := openShard(t, fsys, small())
	defer s.close(t)
	check := func() {
		t.Helper()
		var want Stats
		for _, f := range logFiles(t, fsys) {
			switch {
			case strings.HasSuffix(f.Name, "spare") || strings.HasSuffix(f.Name, "new"):
				want.Spares, want.SpareBytes = want.Spares+1, want.SpareBytes+f.Size
			default:
				want.Segments, want.Bytes = want.Segments+1, want.Bytes+f.Size
			}
		}
		got := s.stats(t) // the next segment has its name already
		if got.Segments+got.Spares != want.Segments+want.Spares || got.Bytes+got.SpareBytes != want.Bytes+want.SpareBytes {
			t.Errorf("got %+v, on the disk are %s", got, fileNames(t, fsys))
		}
	}
	check()
	s.fillUntil(t, 4, 1000)
	check()
	if st := s.stats(t); st.Segments != 4 {
		t.Errorf("%d segments, want 4", st.Segments)
	}
	must(t, s.Trim(wlog.Index(4)<<32|headerSize))
	check()
	if st := s.stats(t); st.Segments != 1 || st.Spares == 0 {
		t.Errorf("after the trim: got %+v", st)
	}
}

func (s *shard) stats(t *testing.T) Stats {
	t.Helper()
	st, ok := s.engine.Stats(0)
	if !ok {
		t.Fatal("the shard is not open")
	}
	return st
}

func TestStatsOfAShardThatIsNotOpen(t *testing.T) {
	e := newEngine(t, crashfs.New(1), small())
	if st, ok := e.Stats(7); ok {
		t.Errorf("got %+v", st)
	}
	must(t, e.Close())
}

// Reading a shard may take minutes, in which an operator may look at the broker. Stats used to wait for that.
func TestStatsDoNotWaitForAShardThatIsOpened(t *testing.T) {
	fsys := crashfs.New(1)
	s := openShard(t, fsys, small())
	s.append(t, "x")
	_, err := s.engine.Open(t.Context(), 0, func(wlog.Index, []byte) error {
		asked := make(chan bool)
		go func() {
			_, ok := s.engine.Stats(0)
			asked <- ok
		}()
		if <-asked {
			t.Error("there is something to tell of a shard that is not open yet")
		}
		return nil
	})
	must(t, err)
	s.close(t)
}
