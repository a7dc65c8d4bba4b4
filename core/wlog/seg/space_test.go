package seg

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
)

// notices is what Space was told, from whichever goroutine.
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

// watched are options that note what Space is told.
func watched(told *notices) Options {
	o := small()
	o.inline = false
	o.Events.Space = func(_ uint32, low *Shortage) { told.add(low != nil) }
	return o
}

// appendWhile appends entries of that size until one is refused for lack of
// space, and returns how many were not.
func (s *shard) appendWhile(t *testing.T, size int) int {
	t.Helper()
	for n := 0; ; n++ {
		_, err := s.Append(t.Context(), make([]byte, size))
		if errors.Is(err, wlog.ErrFull) {
			return n
		}
		must(t, err)
	}
}

func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told notices
		fsys := crashfs.New(1)
		s := openShard(t, fsys, watched(&told))
		fsys.SetSpace(0)
		const large, little = 2000, 100
		if n := s.appendWhile(t, large); n < 10 {
			t.Errorf("%d large entries fit, want about half a segment of them", n)
		}
		synctest.Wait()
		if !slices.Equal(told.all(), []bool{true}) {
			t.Fatalf("Space was told %v, want that it is low", told.all())
		}
		if n := s.appendWhile(t, little); n < 100 {
			t.Errorf("%d small entries fit then, want hundreds", n)
		}
		if n := s.appendWhile(t, large); n > 0 {
			t.Errorf("%d large entries fit after that", n)
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

// A full disk does not keep a broker from starting, again and again.
func TestOpenOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told notices
		fsys := crashfs.New(1)
		s := openShard(t, fsys, watched(&told))
		fsys.SetSpace(0)
		s.appendWhile(t, 2000)
		n := s.appendWhile(t, 100)
		for range 15 {
			s.close(t)
			s = openShard(t, fsys, watched(&told))
		}
		if len(s.found) < n {
			t.Errorf("%d entries are left of more than %d", len(s.found), n)
		}
		if n := s.appendWhile(t, 100); n > 0 {
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

// Space that Trim gives back is used at once.
func TestTrimEndsAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told notices
		fsys := crashfs.New(1)
		s := openShard(t, fsys, watched(&told))
		s.fillUntil(t, 3, 1000)
		synctest.Wait()
		fsys.SetSpace(0)
		s.appendWhile(t, 2000)
		last := s.append(t, "settled")
		must(t, s.Trim(last))
		synctest.Wait()
		if !slices.Equal(told.all(), []bool{true, false}) {
			t.Errorf("Space was told %v, want that it was low and is not", told.all())
		}
		s.append(t, strings.Repeat("x", 2000))
		s.close(t)
	})
}

// For an entry that needs a segment larger than usual there may be no space while
// there is for others.
func TestNoSpaceForALargeEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told notices
		fsys := crashfs.New(1)
		s := openShard(t, fsys, watched(&told))
		s.append(t, strings.Repeat("x", 20_000))
		synctest.Wait() // the next segment is there
		fsys.SetSpace(1000)
		if n := s.appendWhile(t, largeEntry); n > 0 {
			t.Errorf("%d large entries fit", n)
		}
		s.append(t, strings.Repeat("x", 20_000))
		time.Sleep(2 * retryAfter)
		if !slices.Equal(told.all(), []bool{true, false}) {
			t.Errorf("Space was told %v, want that it was low and is not", told.all())
		}
		fsys.SetSpace(1 << 30)
		s.append(t, strings.Repeat("x", largeEntry))
		s.append(t, "and on")
		s.close(t)
		s = openShard(t, fsys, small())
		if len(s.found) != 4 || len(s.found[2]) != largeEntry {
			t.Errorf("%d entries are left, want 4", len(s.found))
		}
		s.close(t)
	})
}

// The disk was too full for a large entry, and the segment that was ready has
// been taken since. What Trim gives back, or the next look for space, must make
// the segment after that one.
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
				for range 3 {
					s.append(t, strings.Repeat("x", 20_000))
					synctest.Wait() // the next segment is there
				}
				fsys.SetSpace(0)
				if n := s.appendWhile(t, largeEntry); n > 0 {
					t.Errorf("%d large entries fit", n)
				}
				s.append(t, strings.Repeat("y", 10_000)) // in the segment that was ready
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
