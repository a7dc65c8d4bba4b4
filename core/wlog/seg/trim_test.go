package seg

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
)

func TestTrimReclaimsWholeSegments(t *testing.T) {
	fsys := crashfs.New(1)
	s := openShard(t, fsys, small())
	var first, last [7]wlog.Index // of each segment
	for s.active.number < 6 {
		at := s.append(t, strings.Repeat("x", 1000))
		n, _ := locate(at)
		last[n] = at
		if first[n] == 0 {
			first[n] = at
		}
	}
	for _, tc := range []struct {
		name   string
		before wlog.Index
		want   string
	}{
		{"nothing", 0, "1.seg 2.seg 3.seg 4.seg 5.seg 6.seg"},
		{"up to an entry in the middle", last[1], "1.seg 2.seg 3.seg 4.seg 5.seg 6.seg"},
		{"up to the next segment", first[2], "1.spare 2.seg 3.seg 4.seg 5.seg 6.seg"},
		{"behind the last entry", last[2] + 1, "1.spare 2.spare 3.seg 4.seg 5.seg 6.seg"},
		{"two are kept", first[4], "1.spare 2.spare 4.seg 5.seg 6.seg"},
		{"not again", first[2], "1.spare 2.spare 4.seg 5.seg 6.seg"},
		{"drained: one is kept", last[6] + 1, "2.spare 6.seg"},
		{"the active segment stays", 1 << 62, "2.spare 6.seg"},
	} {
		were, frees := fileNames(t, fsys), s.Frees(tc.before)
		must(t, s.Trim(tc.before))
		if freed := fileNames(t, fsys) != were; freed != frees && tc.before < 1<<62 {
			t.Errorf("%s: something was removed: %v, Frees said %v", tc.name, freed, frees)
		}
		if got := strings.ReplaceAll(fileNames(t, fsys), "00000-0000000", ""); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
	for i, at := range []wlog.Index{first[1], last[5]} {
		if err := s.ReadAt(t.Context(), at, 0, make([]byte, 1)); !errors.Is(err, wlog.ErrNoEntry) {
			t.Errorf("read of trimmed entry %d: got error %v, want %v", i, err, wlog.ErrNoEntry)
		}
	}
	s.close(t)
}

// A segment without needed entries is freed although it was the active one, because a Trimming entry begins another segment.
func TestTrimmingBeginsASegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := crashfs.New(1)
		s := openShard(t, fsys, small())
		s.append(t, strings.Repeat("x", 300_000))
		must(t, s.Trim(1)) // waits for the prepared segment
		fsys.SetSpace(40 << 10)
		if _, err := s.Append(t.Context(), make([]byte, 200_000), wlog.Settling); !errors.Is(err, wlog.ErrFull) {
			t.Fatalf("got %v, want %v", err, wlog.ErrFull)
		}
		if !s.Frees(1 << 62) {
			t.Fatal("a trim would free nothing")
		}
		at, err := s.Append(t.Context(), make([]byte, 100), wlog.Trimming)
		must(t, err)
		must(t, s.Trim(at))
		if _, err := s.Append(t.Context(), make([]byte, 200_000), wlog.Settling); err != nil {
			t.Errorf("after the trim: %v", err)
		}
		s.close(t)
	})
}

// In the steady state no file is allocated or removed.
func TestSegmentsAreUsedAgain(t *testing.T) {
	for _, live := range []int{5, 50, 150} { // entries of about 1 KiB, some 60 in a segment
		fsys := crashfs.New(1)
		s := openShard(t, fsys, small())
		var indices []wlog.Index
		run := func(entries int) {
			for range entries {
				indices = append(indices, s.append(t, strings.Repeat("x", 1000)))
				if len(indices) > live {
					must(t, s.Trim(indices[len(indices)-live]))
					indices = indices[1:]
				}
			}
		}
		run(1000)
		allocated, removed := fsys.Count(crashfs.OpAllocate), fsys.Count(crashfs.OpRemove)
		run(2000)
		a, r := fsys.Count(crashfs.OpAllocate)-allocated, fsys.Count(crashfs.OpRemove)-removed
		if live != 50 && (a > 0 || r > 0) {
			t.Errorf("with %d live entries: %d files were allocated and %d removed", live, a, r)
		}
		if files := len(strings.Fields(fileNames(t, fsys))); files > 3+live/60 {
			t.Errorf("with %d live entries: %d files", live, files)
		}
		s.close(t)
	}
}

// A log that never held much takes little space, and a log that holds much has few files.
func TestSegmentsGrow(t *testing.T) {
	fsys := crashfs.New(1)
	o := small()
	o.SegmentSize, o.first = 256<<10, 0
	if o, err := o.withDefaults(1 << 40); err != nil || o.first != 256<<10 {
		t.Errorf("the first segment of logs with short ones has %d bytes (error %v)", o.first, err)
	}
	o.first = 16 << 10
	s := openShard(t, fsys, o)
	check := func(want string) {
		t.Helper()
		var got []string
		for _, f := range logFiles(t, fsys) {
			got = append(got, fmt.Sprintf("%s %d", strings.TrimPrefix(f.Name, "00000-0000000"), f.Size>>10))
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	check("1.seg 16")
	s.fillUntil(t, 4, 1000)
	check("1.seg 16, 2.seg 64, 3.seg 256, 4.seg 256")
	must(t, s.Trim(1<<62))
	check("3.spare 256, 4.seg 256")
	s.fillUntil(t, 5, 1000)
	s.close(t)
	s = openShard(t, fsys, o)
	s.fillUntil(t, 6, 1000)
	check("4.seg 256, 5.seg 256, 6.seg 256")
	s.close(t)
}

// A file with a reader is neither reused nor closed under it.
func TestTrimWhileReading(t *testing.T) {
	fsys := crashfs.New(1)
	s := openShard(t, fsys, small())
	entry := strings.Repeat("precious ", 100)
	at := s.append(t, entry)
	g, err := s.table.borrow(at)
	must(t, err)
	s.fillUntil(t, 3, 1000)
	must(t, s.Trim(1<<62))
	s.fillUntil(t, 7, 1000)

	_, off := locate(at)
	p := make([]byte, len(entry))
	must(t, g.read(p, off+wlog.HeaderSize))
	if string(p) != entry {
		t.Errorf("got %.50q", p)
	}
	s.table.release(g)
	if err := g.read(p, off); err == nil {
		t.Error("the file was not closed when the last reader was done")
	}
	s.close(t)
}

func TestSparesSurvive(t *testing.T) {
	fsys := crashfs.New(1)
	s := openShard(t, fsys, small())
	s.fillUntil(t, 4, 1000)
	must(t, s.Trim(1<<62))
	s.close(t)
	replace(t, fsys, "00000-00000009.new", make([]byte, 100)) // a process died while it made this file
	replace(t, fsys, "00000-00000001.spare", make([]byte, 100))
	replace(t, fsys, "00001-00000001.spare", make([]byte, 100)) // another shard's
	s = openShard(t, fsys, small())
	if got, want := fileNames(t, fsys), "00000-00000002.spare 00000-00000004.seg 00001-00000001.spare"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	before := fsys.Count(crashfs.OpAllocate)
	s.fillUntil(t, 5, 1000)
	if got := fsys.Count(crashfs.OpAllocate) - before; got > 0 {
		t.Errorf("%d files were allocated while there was a spare one", got)
	}
	s.close(t)
}

func TestTrimFails(t *testing.T) {
	for _, kind := range []crashfs.OpKind{crashfs.OpRename, crashfs.OpSyncDir} {
		t.Run(kind.String(), func(t *testing.T) {
			fsys := crashfs.New(1)
			s := openShard(t, fsys, small())
			n := s.fillUntil(t, 3, 1000)
			failAll(fsys, kind)
			if err := s.Trim(1 << 62); !errors.Is(err, errBroken) {
				t.Fatalf("got error %v, want %v", err, errBroken)
			}
			<-s.Lost()
			fsys.Inject(nil)
			s.close(t)
			s = openShard(t, fsys.LosePower(), small())
			if len(s.found) == 0 || len(s.found) > n {
				t.Errorf("%d entries are left of %d", len(s.found), n)
			}
			s.close(t)
		})
	}
}

// With Flush, a trim made the new names of files durable before the entries that had been moved out of them: a loss of power destroyed
// entries that had been durable for long.
func TestFlushTrimsOnlyWhatIsDurableElsewhere(t *testing.T) {
	for seed := range uint64(100) {
		fsys := crashfs.New(seed)
		o := small()
		o.Durability = Flush
		s := openShard(t, fsys, o)
		s.append(t, "old and precious")
		s.fillUntil(t, 3, 4000)               // the segments before are closed, and durable
		at := s.append(t, "old and precious") // the entry was moved
		must(t, s.Trim(at))
		fsys = fsys.LosePower()
		_ = s.engine.Close()
		s = openShard(t, fsys, o)
		if !slices.Contains(s.found, "old and precious") {
			t.Errorf("seed %d: what was durable is lost", seed)
		}
		s.close(t)
	}
}

// Messages that leave a shard may be in another one by now, such as dead letters. The other shard must be durable, too.
func TestFlushTrimsOnlyWhatIsDurableInOtherShards(t *testing.T) {
	for seed := range uint64(100) {
		fsys := crashfs.New(seed)
		o := small()
		o.Durability = Flush
		s := openShard(t, fsys, o)
		other, err := s.engine.Open(t.Context(), 1, func(wlog.Index, []byte) error { return nil })
		must(t, err)
		s.append(t, "old and precious")
		s.fillUntil(t, 3, 4000)
		_, err = other.Append(t.Context(), []byte("old and precious"), wlog.Bringing)
		must(t, err)
		must(t, s.Trim(s.append(t, "it left")))
		fsys = fsys.LosePower()
		_ = s.engine.Close()

		s = openShard(t, fsys, o)
		_, err = s.engine.Open(t.Context(), 1, func(_ wlog.Index, entry []byte) error {
			s.found = append(s.found, string(entry))
			return nil
		})
		must(t, err)
		if !slices.Contains(s.found, "old and precious") {
			t.Errorf("seed %d: what was durable is lost", seed)
		}
		s.close(t)
	}
}

// Segments of another size than the present one are read, and not reused.
func TestSegmentSizeChanges(t *testing.T) {
	fsys := crashfs.New(1)
	s := openShard(t, fsys, Options{SegmentSize: 32 << 10, inline: true})
	n := s.fillUntil(t, 3, 1000)
	s.close(t)
	s = openShard(t, fsys, small())
	if len(s.found) != n {
		t.Errorf("%d entries are left of %d", len(s.found), n)
	}
	s.fillUntil(t, 5, 1000)
	must(t, s.Trim(1<<62))
	s.close(t)
	for _, f := range logFiles(t, fsys) {
		if f.Size != 64<<10 {
			t.Errorf("%s has %d bytes", f.Name, f.Size)
		}
	}
}

// A log of definitions held a few kilobytes and took three files of 64 MiB for good, after tens of thousands of queues had come and gone.
func TestAShortShardTakesLittleOnceItIsDrained(t *testing.T) {
	fsys := crashfs.New(1)
	s := openShard(t, fsys, Options{Short: []uint32{0}, inline: true})
	for range 300 {
		s.append(t, strings.Repeat("x", 100_000))
	}
	must(t, s.Trim(1<<62))
	if st := s.stats(t); st.Bytes+st.SpareBytes > 8<<20 {
		t.Errorf("got %+v, want two files of 4 MiB at most", st)
	}
	s.close(t)
}
