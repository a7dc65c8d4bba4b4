package seg

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
)

// TestSyncs audits the cost of appends: one write and one sync for an entry, and for each segment two of both and a sync of the directory.
func TestSyncs(t *testing.T) {
	for _, tc := range []struct {
		name       string
		durability Durability
		perAppend  int
	}{{"fsync", Fsync, 1}, {"flush", Flush, 0}} {
		t.Run(tc.name, func(t *testing.T) {
			fsys := crashfs.New(1)
			o := small()
			o.Durability = tc.durability
			s := openShard(t, fsys, o)
			defer s.close(t)
			kinds := []crashfs.OpKind{crashfs.OpWrite, crashfs.OpSync, crashfs.OpSyncDir, crashfs.OpAllocate, crashfs.OpCreate, crashfs.OpRename, crashfs.OpRead}
			count := func() (counts [7]int) {
				for i, k := range kinds {
					counts[i] = fsys.Count(k)
				}
				return counts
			}
			check := func(what string, before [7]int, want [7]int) {
				t.Helper()
				for i, n := range count() {
					if got := n - before[i]; got != want[i] {
						t.Errorf("%s: %v: got %d, want %d", what, kinds[i], got, want[i])
					}
				}
			}

			before := count()
			for range 10 {
				s.append(t, "little")
			}
			check("ten appends", before, [7]int{10, 10 * tc.perAppend, 0, 0, 0, 0, 0})

			before = count()
			n := s.fillUntil(t, 4, 1000) // three segments are prepared and three closed, and not yet the next
			check("three segments", before, [7]int{n + 3*2, n*tc.perAppend + 3*2, 3, 3, 3, 3, 0})
		})
	}
}

// Only Flush leaves anything to do for Close.
func TestCloseMakesDurable(t *testing.T) {
	for seed := range uint64(20) {
		fsys := crashfs.New(seed)
		o := small()
		o.Durability = Flush
		s := openShard(t, fsys, o)
		for range 100 {
			s.append(t, strings.Repeat("x", 1000))
		}
		s.close(t)
		fsys = fsys.LosePower()
		s = openShard(t, fsys, o)
		if len(s.found) != 100 {
			t.Errorf("seed %d: %d entries are left of 100", seed, len(s.found))
		}
		s.close(t)
	}
}

// A process dies after it gave the next segment its name and before the name was durable. The next process finds the name, and uses it.
func TestNameOfASegmentIsMadeDurable(t *testing.T) {
	for seed := range uint64(20) {
		fsys := crashfs.New(seed)
		s := openShard(t, fsys, small())
		fsys.Inject(func(op crashfs.Op) error {
			if op.Kind == crashfs.OpSyncDir {
				return crashfs.ErrPower
			}
			return nil
		})
		for {
			if _, err := s.Append(t.Context(), make([]byte, 1000), wlog.Bringing); err != nil {
				break
			}
		}
		_ = s.engine.Close() // the process is gone

		fsys = fsys.Kill()
		s = openShard(t, fsys, small())
		s.fillUntil(t, 2, 1000)
		s.append(t, "in the second segment")
		_ = s.engine.Close()

		s = openShard(t, fsys.LosePower(), small())
		if got := s.found[len(s.found)-1]; got != "in the second segment" {
			t.Errorf("seed %d: the last entry is %.20q", seed, got)
		}
		s.close(t)
	}
}

// After a failed sync the system takes unwritten pages for written. The next owner reads these entries and continues from them, and must
// not lose them at the next loss of power.
func TestNothingIsBuiltOnAFailedSync(t *testing.T) {
	for _, tc := range []struct {
		name    string
		prepare func(t *testing.T, s *shard)
	}{
		{"of an entry", func(t *testing.T, s *shard) { t.Helper(); s.append(t, "first") }},
		{"of a closed segment's end", func(t *testing.T, s *shard) {
			t.Helper()
			for s.fits(wlog.EntrySize(1000), wlog.Bringing) {
				s.append(t, strings.Repeat("x", 1000))
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for seed := range uint64(20) {
				fsys := crashfs.New(seed)
				s := openShard(t, fsys, small())
				tc.prepare(t, s)
				failAll(fsys, crashfs.OpSync)
				if _, err := s.Append(t.Context(), make([]byte, 1000), wlog.Bringing); !errors.Is(err, errBroken) {
					t.Fatalf("got error %v, want %v", err, errBroken)
				}
				fsys.Inject(nil)
				s.close(t)

				s = openShard(t, fsys, small())
				found := len(s.found)
				s.append(t, "built on it")
				s.close(t)

				s = openShard(t, fsys.LosePower(), small())
				if len(s.found) != found+1 {
					t.Errorf("seed %d: %d entries are left of %d", seed, len(s.found), found+1)
				}
				s.close(t)
			}
		})
	}
}

// A failed write or sync ends the log, and is not repeated.
func TestFailureIsFinal(t *testing.T) {
	for _, kind := range []crashfs.OpKind{crashfs.OpWrite, crashfs.OpSync} {
		t.Run(kind.String(), func(t *testing.T) {
			fsys := crashfs.New(1)
			s := openShard(t, fsys, small())
			fsys.FailNth(kind, 0)
			if _, err := s.Append(t.Context(), []byte("x"), wlog.Bringing); !errors.Is(err, crashfs.ErrInjected) {
				t.Fatalf("got error %v, want %v", err, crashfs.ErrInjected)
			}
			<-s.Lost()
			writes, syncs := fsys.Count(crashfs.OpWrite), fsys.Count(crashfs.OpSync)
			for range 3 {
				_, err := s.Append(t.Context(), []byte("x"), wlog.Bringing)
				if !errors.Is(err, wlog.ErrLost) || !errors.Is(err, crashfs.ErrInjected) {
					t.Errorf("afterwards: got error %v, want %v, and why", err, wlog.ErrLost)
				}
			}
			must(t, s.shardLog.Close())
			if w, f := fsys.Count(crashfs.OpWrite), fsys.Count(crashfs.OpSync); w != writes || f != syncs {
				t.Errorf("%d writes and %d syncs came after the failure", w-writes, f-syncs)
			}
			s.close(t)
		})
	}
}

// A segment that cannot be made is missed only when it is needed.
func TestFailureToPrepareASegment(t *testing.T) {
	for _, kind := range []crashfs.OpKind{crashfs.OpCreate, crashfs.OpAllocate, crashfs.OpRename, crashfs.OpSyncDir} {
		t.Run(kind.String(), func(t *testing.T) {
			fsys := crashfs.New(1)
			s := openShard(t, fsys, small())
			failAll(fsys, kind)
			var err error
			for n := 0; err == nil; n++ {
				if _, err = s.Append(t.Context(), make([]byte, 1000), wlog.Bringing); err == nil && n > 100 {
					t.Fatal("appends go on")
				}
			}
			if want := "prepare segment 00000002: "; !errors.Is(err, errBroken) || !strings.Contains(err.Error(), want) {
				t.Errorf("got error %v, want %q", err, want)
			}
			<-s.Lost()
			fsys.Inject(nil)
			s.close(t)
			s = openShard(t, fsys, small())
			s.fillUntil(t, 3, 1000)
			s.close(t)
		})
	}
}

// The file is reused again and again. Entries of its former lives lie exactly where new ones would.
func TestStaleEntriesStayDead(t *testing.T) {
	fsys := crashfs.New(1)
	entry := func(n int) string { return fmt.Sprintf("%0100d", n) }
	appended, first := 0, 0
	var indices []wlog.Index
	for life := range 40 {
		s := openShard(t, fsys, small())
		for i, got := range s.found {
			if want := entry(appended - len(s.found) + i); got != want {
				t.Fatalf("life %d: entry %d is %s, want %s", life, i, got, want)
			}
		}
		if len(s.found) < appended-first {
			t.Fatalf("life %d: %d entries are left, want %d or more", life, len(s.found), appended-first)
		}
		for range 150 + 11*life {
			indices = append(indices, s.append(t, entry(appended)))
			appended++
		}
		first = appended - 20
		must(t, s.Trim(indices[first]))
		_ = s.engine.Close()
		fsys = fsys.LosePower()
	}
	if got := fsys.Count(crashfs.OpAllocate); got > 0 {
		t.Errorf("the last life allocated %d segments", got)
	}
}

// The Takeover is in the log before Open returns.
func TestTakeoverIsDurable(t *testing.T) {
	for _, durability := range []Durability{Fsync, Flush} {
		for seed := range uint64(20) {
			fsys := crashfs.New(seed)
			o := small()
			o.Durability = durability
			for epoch := uint64(1); epoch < 4; epoch++ {
				openShard(t, fsys, o)
				fsys = fsys.LosePower()
				reports, err := Verify(t.Context(), fsys)
				must(t, err)
				if len(reports) != 1 || reports[0].Epoch != epoch {
					t.Fatalf("seed %d: got %+v, want epoch %d", seed, reports, epoch)
				}
			}
		}
	}
}

// The salt is new whenever a file becomes a segment.
func TestSalts(t *testing.T) {
	s := openShard(t, crashfs.New(1), small())
	seen := map[uint64]bool{}
	for number := uint32(1); number < 20; number++ {
		seen[s.active.salt] = true
		s.fillUntil(t, number+1, 1000)
		must(t, s.Trim(1<<62))
	}
	if len(seen) != 19 {
		t.Errorf("19 segments have %d salts", len(seen))
	}
	s.close(t)
}

// A firm shard keeps its entries whatever the other shards do, and makes earlier entries of these durable first. The definition of a queue
// was lost for good before the dead letters were durable that the queue had given up.
func TestFirm(t *testing.T) {
	for seed := range uint64(50) {
		fsys := crashfs.New(seed)
		o := small()
		o.Durability, o.Firm = Flush, []uint32{0}
		s := openShard(t, fsys, o)
		other, err := s.engine.Open(t.Context(), 1, func(wlog.Index, []byte) error { return nil })
		must(t, err)
		_, err = other.Append(t.Context(), []byte("a"), wlog.Bringing)
		must(t, err)
		s.append(t, "b")
		fsys = fsys.LosePower()
		_ = s.engine.Close()

		s = openShard(t, fsys, o)
		_, err = s.engine.Open(t.Context(), 1, func(_ wlog.Index, entry []byte) error {
			s.found = append(s.found, string(entry))
			return nil
		})
		must(t, err)
		if got := strings.Join(s.found, ""); got != "ba" {
			t.Errorf("seed %d: found %q, want ba", seed, got)
		}
		s.close(t)
	}
}

// A trim continues beside a shard that cannot be synced. Entries that it removes and that had gone to that shard stay removed, because
// their removal here was durable first: no later start brings them back.
func TestATrimBesideAFailedShard(t *testing.T) {
	for seed := range uint64(50) {
		fsys := crashfs.New(seed)
		o := small()
		o.Durability = Flush
		s := openShard(t, fsys, o)
		other, err := s.engine.Open(t.Context(), 1, func(wlog.Index, []byte) error { return nil })
		must(t, err)
		s.append(t, "a message")
		s.fillUntil(t, 2, 1000)
		_, err = other.Append(t.Context(), []byte("the message"), wlog.Bringing)
		must(t, err)
		at := s.append(t, "it is settled")
		fsys.Inject(func(op crashfs.Op) error {
			if op.Kind == crashfs.OpSync && strings.HasPrefix(op.Name, "00001-") {
				return errBroken
			}
			return nil
		})
		must(t, s.Trim(at))
		<-other.Lost()
		if got := fileNames(t, fsys); strings.Contains(got, "00000-00000001.seg") {
			t.Fatalf("seed %d: nothing was trimmed: %s", seed, got)
		}
		fsys = fsys.LosePower()
		_ = s.engine.Close()

		s = openShard(t, fsys, o)
		if !slices.Contains(s.found, "it is settled") {
			t.Errorf("seed %d: the settlement is gone, and what it settled with it", seed)
		}
		s.close(t)
	}
}
