package seg

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// notices are the reports of Space, from any goroutine.
type notices struct {
	mu   sync.Mutex
	list []bool
}

func (n *notices) add(low bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, low)
}

func (n *notices) all() []bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.list)
}

// watched returns options that record the reports of Space.
func watched(told *notices) Options {
	o := small()
	o.inline = false
	o.Events.Space = func(_ uint32, low *Shortage) { told.add(low != nil) }
	return o
}

// appendWhile appends entries of size bytes until one is refused for lack of space, and returns the number of the others.
func (s *shard) appendWhile(t *testing.T, size int, purpose wlog.Purpose) int {
	t.Helper()
	for n := 0; ; n++ {
		_, err := s.Append(t.Context(), make([]byte, size), purpose)
		if errors.Is(err, wlog.ErrFull) {
			return n
		}
		must(t, err)
	}
}

// settle appends a Settling entry of size bytes.
func (s *shard) settle(t *testing.T, size int) {
	t.Helper()
	_, err := s.Append(t.Context(), make([]byte, size), wlog.Settling)
	must(t, err)
}

func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told notices
		fsys := crashfs.New(1)
		s := openShard(t, fsys, watched(&told))
		fsys.SetSpace(0)
		const large, little = 2000, 100
		if n := s.appendWhile(t, large, wlog.Bringing); n < 10 {
			t.Errorf("%d large entries fit, want about half a segment of them", n)
		}
		s.appendWhile(t, little, wlog.Bringing)
		synctest.Wait()
		if !slices.Equal(told.all(), []bool{true}) {
			t.Fatalf("Space was told %v, want that it is low", told.all())
		}
		for _, size := range []int{large, little} {
			if n := s.appendWhile(t, size, wlog.Bringing); n > 0 {
				t.Errorf("%d entries of %d bytes that bring more fit into what is kept", n, size)
			}
		}
		s.settle(t, large)
		if n := s.appendWhile(t, little, wlog.Settling); n < 100 {
			t.Errorf("%d entries that settle fit then, want hundreds", n)
		}
		select {
		case <-s.Lost():
			t.Fatal("a full disk is the end of the log")
		default:
		}

		time.Sleep(10 * retryAfter)
		if len(told.all()) > 1 {
			t.Fatalf("Space was told %v while there is none", told.all())
		}
		fsys.SetSpace(1 << 30)
		time.Sleep(2 * retryAfter)
		if !slices.Equal(told.all(), []bool{true, false}) {
			t.Fatalf("Space was told %v, want that it was low and is not", told.all())
		}
		s.append(t, strings.Repeat("x", large))
		s.append(t, strings.Repeat("x", largeEntry))
		s.close(t)
	})
}

// Connections may leave no descriptors for files. That ends like a full disk, when there are descriptors again, and no log has ended.
func TestNoMoreFilesCanBeOpened(t *testing.T) {
	for _, kind := range []crashfs.OpKind{crashfs.OpCreate, crashfs.OpSyncDir} { // the latter after the file has got its name
		for trimmed := range 2 { // with files that are reused
			synctest.Test(t, func(t *testing.T) {
				var told notices
				var files atomic.Bool
				fsys, o := crashfs.New(1), watched(&told)
				o.Events.Space = func(_ uint32, low *Shortage) {
					told.add(low != nil)
					files.Store(low != nil && low.Files)
				}
				s := openShard(t, fsys, o)
				const large = 2000
				for range trimmed * 100 {
					at, err := s.Append(t.Context(), make([]byte, large), wlog.Bringing)
					must(t, err)
					must(t, s.Trim(at))
				}
				synctest.Wait()
				fsys.Inject(func(op crashfs.Op) error {
					if op.Kind == kind {
						return &fs.PathError{Op: "open", Path: op.Name, Err: syscall.EMFILE}
					}
					return nil
				})
				s.appendWhile(t, large, wlog.Bringing)
				s.settle(t, large)
				synctest.Wait()
				if !slices.Equal(told.all(), []bool{true}) || !files.Load() {
					t.Fatalf("Space was told %v, files %t, want that there are none", told.all(), files.Load())
				}
				time.Sleep(10 * retryAfter)
				fsys.Inject(nil)
				time.Sleep(2 * retryAfter)
				if !slices.Equal(told.all(), []bool{true, false}) {
					t.Fatalf("Space was told %v, want that there were none and are some", told.all())
				}
				for range 100 {
					s.append(t, strings.Repeat("x", large))
				}
				s.close(t)
				again := openShard(t, fsys, small())
				if n := len(again.found); n < 100 {
					t.Errorf("%d entries are left, want at least the last 100", n)
				}
				again.close(t)
			})
		}
	}
}

// A trim also makes names durable, and would end the log if it could not open the directory.
func TestAnEngineNeedsNoDescriptorToSyncNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	d, err := vfs.Make(dir)
	must(t, err)
	e := newEngine(t, d, small())
	must(t, os.Rename(dir, dir+".away")) // like a lack of descriptors: the directory cannot be opened
	if err := d.Sync(); err == nil {
		t.Fatal("the directory could be opened")
	}
	if err := e.storage(0).fs.Sync(); err != nil {
		t.Error(err)
	}
	must(t, e.Close())
	if err := e.storage(0).fs.Sync(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Close: %v, want that the directory is closed", err)
	}
}

// A full disk does not keep a broker from starting, again and again.
func TestOpenOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told notices
		fsys := crashfs.New(1)
		s := openShard(t, fsys, watched(&told))
		fsys.SetSpace(0)
		s.appendWhile(t, 2000, wlog.Bringing)
		n := s.appendWhile(t, 100, wlog.Settling)
		for range 15 {
			s.close(t)
			s = openShard(t, fsys, watched(&told))
		}
		if len(s.found) < n {
			t.Errorf("%d entries are left of more than %d", len(s.found), n)
		}
		if n := s.appendWhile(t, 100, wlog.Settling); n > 0 {
			t.Errorf("%d entries fit into what is kept for opening", n)
		}
		s.close(t)
	})
}

func TestOpenWithoutAnySpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := crashfs.New(1)
		fsys.SetSpace(0)
		if _, err := tryOpen(t, fsys, small()); !errors.Is(err, wlog.ErrFull) {
			t.Errorf("got error %v, want %v", err, wlog.ErrFull)
		}
		if got := fileNames(t, fsys); got != "" {
			t.Errorf("left behind: %s", got)
		}
		fsys.SetSpace(1 << 30)
		openShard(t, fsys, small()).close(t)
	})
}

// Space that Trim frees is used at once.
func TestTrimEndsAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told notices
		fsys := crashfs.New(1)
		s := openShard(t, fsys, watched(&told))
		s.fillUntil(t, 9, 1000)
		synctest.Wait()
		fsys.SetSpace(0)
		s.appendWhile(t, 2000, wlog.Bringing)
		s.settle(t, 100)
		must(t, s.Trim(1<<62))
		synctest.Wait()
		if !slices.Equal(told.all(), []bool{true, false}) {
			t.Errorf("Space was told %v, want that it was low and is not", told.all())
		}
		s.append(t, strings.Repeat("x", 2000))
		s.close(t)
	})
}

// There may be no space for an entry that needs an unusually large segment, while there is space for others. Its publisher waits, and
// entries that settle do not.
func TestNoSpaceForALargeEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told notices
		fsys := crashfs.New(1)
		s := openShard(t, fsys, watched(&told))
		s.append(t, strings.Repeat("x", 20_000))
		synctest.Wait()          // the next segment is there
		fsys.SetSpace(290 << 10) // the reserve has 128 KiB, the large segment 100 and the one after it 64
		if n := s.appendWhile(t, largeEntry, wlog.Bringing); n > 0 {
			t.Errorf("%d large entries fit", n)
		}
		s.settle(t, 20_000)
		time.Sleep(10 * retryAfter)
		if !slices.Equal(told.all(), []bool{true}) {
			t.Errorf("Space was told %v, want that it is low, once", told.all())
		}
		fsys.SetSpace(1 << 30)
		time.Sleep(2 * retryAfter)
		s.append(t, strings.Repeat("x", largeEntry))
		s.append(t, "and on")
		s.close(t)
		if !slices.Equal(told.all(), []bool{true, false}) {
			t.Errorf("Space was told %v, want that it was low and is not", told.all())
		}
		s = openShard(t, fsys, small())
		if len(s.found) != 4 || len(s.found[2]) != largeEntry {
			t.Errorf("%d entries are left, want 4", len(s.found))
		}
		s.close(t)
	})
}

// The disk was too full for a large entry, and the segment that was ready has been taken since. The space that Trim frees, or the next
// check for space, must make the segment after that one.
func TestSegmentAfterAFullDisk(t *testing.T) {
	for _, tc := range []struct {
		name string
		next func(t *testing.T, s *shard, fsys *crashfs.FS)
	}{
		{"trim", func(t *testing.T, s *shard, _ *crashfs.FS) { t.Helper(); must(t, s.Trim(1<<62)) }},
		{"retry", func(_ *testing.T, _ *shard, fsys *crashfs.FS) {
			fsys.SetSpace(1 << 30)
			time.Sleep(2 * retryAfter)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told notices
				fsys := crashfs.New(1)
				s := openShard(t, fsys, watched(&told))
				s.fillUntil(t, 9, 1000)
				for range 2 {
					s.append(t, strings.Repeat("x", 20_000))
					synctest.Wait() // the next segment is there
				}
				fsys.SetSpace(0)
				if n := s.appendWhile(t, largeEntry, wlog.Bringing); n > 0 {
					t.Errorf("%d large entries fit", n)
				}
				for range 3 {
					s.settle(t, 10_000) // in the segment that was ready
				}
				tc.next(t, s, fsys)
				synctest.Wait()
				s.append(t, "last")
				s.close(t)
				s = openShard(t, fsys, small())
				if n := len(s.found); n < 2 || len(s.found[n-2]) != 10_000 || s.found[n-1] != "last" {
					t.Errorf("%d entries are left, not those that were appended last", n)
				}
				s.close(t)
			})
		})
	}
}

// However little space there is, Settling entries use all of it: the disk's last bytes in segments that are as short as necessary.
func TestWhatSettlesTakesTheLastOfTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told notices
		fsys := crashfs.New(1)
		s := openShard(t, fsys, watched(&told))
		fsys.SetSpace(100 << 10)
		s.appendWhile(t, 2000, wlog.Bringing)
		moved := s.appendWhile(t, 2000, wlog.Moving) * 2000
		settled := s.appendWhile(t, 2000, wlog.Settling) * 2000
		if moved < 60<<10 || settled < 25<<10 || moved+settled < 110<<10 {
			t.Errorf("%d bytes were moved and %d settled, of 132 KiB that were kept", moved, settled)
		}
		if n := s.appendWhile(t, 150, wlog.Trimming); n < 4 {
			t.Errorf("%d entries that trim were appended to what settles had left", n)
		}
		fsys.SetSpace(1 << 30)
		time.Sleep(2 * retryAfter)
		s.append(t, "goes on")
		s.close(t)
		s = openShard(t, fsys, small())
		if got := s.found[len(s.found)-1]; got != "goes on" {
			t.Errorf("the last entry is %.20q", got)
		}
		s.close(t)
	})
}

// A disk of 64 MB had no space for a second segment of 64 MiB: publishers were stopped for good after 8.5 MB.
func TestASmallDiskHasShortSegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			disk, size int64 // MiB
		}{{4, 0}, {64, 2}, {200, 6}, {1 << 10, 32}, {1 << 20, 64}} {
			fsys := crashfs.New(1)
			fsys.SetSpace(tc.disk << 20)
			engine := newEngine(t, fsys, Options{})
			if got := engine.SegmentSize() >> 20; got != tc.size {
				t.Errorf("a disk of %d MiB has segments of %d MiB, want %d", tc.disk, got, tc.size)
			}
			must(t, engine.Close())
		}
		var told notices
		fsys := crashfs.New(1)
		fsys.SetSpace(64 << 20)
		o := watched(&told)
		o.SegmentSize = 0
		s := openShard(t, fsys, o)
		if taken := s.appendWhile(t, 20_000, wlog.Bringing) * 20_000 >> 20; taken < 54 || !slices.Equal(told.all(), []bool{true}) {
			t.Errorf("a disk of 64 MiB took %d; Space was told %v", taken, told.all())
		}
		must(t, s.Trim(1<<62))
		synctest.Wait()
		if taken := s.appendWhile(t, 20_000, wlog.Bringing) * 20_000 >> 20; taken < 54 {
			t.Errorf("after everything was settled it took %d MiB", taken)
		}
		if got := capacityOf(t, s); got != 2<<20 {
			t.Errorf("the next process makes segments of %d bytes there", got)
		}
	})
}

// capacityOf opens the shard's directory anew, and returns the size of segments.
func capacityOf(t *testing.T, s *shard) int64 {
	t.Helper()
	s.close(t)
	engine := newEngine(t, s.fs, Options{})
	defer func() { must(t, engine.Close()) }()
	return engine.SegmentSize()
}

// The journal grants the space that Room returns: entries that settle must take it, but for the ends of segments.
func TestRoom(t *testing.T) {
	fsys := crashfs.New(1)
	s := openShard(t, fsys, small())
	fsys.SetSpace(20 * small().SegmentSize)
	const size = 200
	before := s.Room()
	took := int64(s.appendWhile(t, size, wlog.Settling)) * wlog.EntrySize(size)
	if took > before || took < before*9/10 {
		t.Errorf("%d bytes of entries were taken, of room for %d", took, before)
	}
	if left := s.Room(); left > before/10 {
		t.Errorf("there is room for %d bytes more, and not for %d", left, size)
	}
	s.close(t)
}
