package journal

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// A disk of dead letters stayed full when all of them had been taken. Their settlements were written in the order in which they came, one
// an entry as soon as not all of them fitted: the last of the space went to headers, and to settlements that let nothing be trimmed.
func TestWhatLetsTheLogBeTrimmedIsSettledFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		l := &memLog{hoard: true}
		s := open(t, l, Options{Extent: 1, Operations: operations})
		for extent := range 2 {
			var ops []byte
			for i := range n {
				ops = fmt.Appendf(ops, "+%d,;", extent*n+i)
			}
			s.Commit(ops, []Delta{{uint32(1 + extent), n}}, nil)
			if err := s.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		const most = 200
		l.limit(most)
		l.keep(wlog.Settling)
		s.Commit([]byte("+5000,;"), []Delta{{s.Extent(), 1}}, nil)
		synctest.Wait()
		for i := 2*n - 1; i >= 0; i-- { // the front's last
			s.Commit(fmt.Appendf(nil, "-%d;", i), []Delta{{uint32(1 + i/n), -1}}, nil)
		}
		time.Sleep(time.Minute)
		settled, entries := 0, l.bodies()[2:]
		for _, entry := range entries {
			fold(entry, func(int, string) {}, func(id int) {
				if front := settled < n; front != (id < n) {
					t.Errorf("message %d was settled as number %d, the first %d are at the front", id, settled, n)
				}
				settled++
			})
		}
		if settled != 2*n || len(entries) > 4*2*n*len("-1000;")/most {
			t.Errorf("%d were settled, want %d; %d entries", settled, 2*n, len(entries))
		}
		l.keep(wlog.Bringing)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
	})
}

// A purge that was larger than the space left to settlements was tried again and again, and those behind it were not tried at all.
func TestWhatDoesNotFitDoesNotStandBeforeSmallerSettlements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, large = 100, 80
		l := &memLog{hoard: true}
		s := open(t, l, Options{Extent: 1, Operations: operations})
		var front, behind, purges []byte
		for i := range large {
			front, purges = fmt.Appendf(front, "+%d,;", i), fmt.Appendf(purges, "-%d;", i)
		}
		for i := large; i < n; i++ {
			behind = fmt.Appendf(behind, "+%d,;", i)
		}
		for i, ops := range [][]byte{front, behind} {
			s.Commit(ops, []Delta{{uint32(1 + i), []int64{large, n - large}[i]}}, nil)
			if err := s.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		l.limit(len(purges) - 1)
		l.keep(wlog.Settling)
		s.Commit([]byte("+5000,;"), []Delta{{s.Extent(), 1}}, nil)
		synctest.Wait()
		s.CommitAs(wlog.Settling, purges, nil, nil)
		for i := large; i < n; i++ {
			s.Commit(fmt.Appendf(nil, "-%d;", i), []Delta{{2, -1}}, nil)
		}
		time.Sleep(time.Minute)
		if left := len(l.state()); left != large {
			t.Errorf("%d messages are left, want %d", left, large)
		}
		l.limit(len(purges) + 100)
		l.keep(wlog.Bringing)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
	})
}

// reserve is space that entries take, and that a trim gives back when nothing is left of the log's front.
type reserve struct{ left int }

// A purge that fitted was not tried, because smaller settlements were there: with the entry of all of them too large and the next size that
// was tried smaller than the purge, only they were written. They took the space until the purge did not fit any more, and only that would
// have let the log be trimmed.
func TestAPurgeThatFitsIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const front, behind = 100, 800
		l := &memLog{hoard: true}
		s := open(t, l, Options{Extent: 1, Operations: operations})
		var first, second, purge []byte
		for i := range front {
			first, purge = fmt.Appendf(first, "+%d,;", 1000+i), fmt.Appendf(purge, "-%d;", 1000+i)
		}
		for i := range behind {
			second = fmt.Appendf(second, "+%d,;", 2000+i)
		}
		s.Commit(first, []Delta{{1, front}}, nil)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		s.Commit(second, []Delta{{2, behind}}, nil)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		space := reserve{left: 1000}
		l.mu.Lock()
		l.fits = func(size int) bool { return size <= space.left }
		l.written = func(entry string) { space.left -= len(entry) }
		l.mu.Unlock()
		l.trimmed = func(wlog.Index) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			space.left += len(first)
			return nil
		}
		l.keep(wlog.Settling)
		s.Commit([]byte("+5000,;"), []Delta{{s.Extent(), 1}}, nil)
		synctest.Wait()
		h := &history{}
		s.CommitAs(wlog.Settling, purge, nil, &accounting{s, Delta{1, -front}, h.as("purge")})
		for i := range behind {
			s.Commit(fmt.Appendf(nil, "-%d;", 2000+i), []Delta{{2, -1}}, nil)
		}
		time.Sleep(10 * time.Second)
		if got := h.durable(); len(got) != 1 {
			t.Errorf("a purge of %d bytes was not written, with space for 1000; %d bytes are left, %d messages", len(purge), space.left, len(l.state()))
		}
		l.limit(1 << 20)
		l.keep(wlog.Bringing)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
	})
}

// accounting accounts for a purge when that is durable, as queues do.
type accounting struct {
	w     *Writer
	freed Delta
	Completer
}

func (a *accounting) Durable() {
	a.w.Commit(nil, []Delta{a.freed}, nil)
	a.Completer.Durable()
}

// A purge of more than an entry was not tried as long as anything else settled or moved, though there was space for it: it is larger than what
// is tried at once, and what is larger was taken only if there was nothing else.
func TestALargePurgeIsTriedBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const large, small = 1000, 500
		l := &memLog{hoard: true}
		s := open(t, l, Options{Extent: 1 << 20, Entry: 4 << 10, Operations: operations})
		var all, purge []byte
		for i := range large + small {
			all = fmt.Appendf(all, "+%d,;", 100_000+i)
			if i < large {
				purge = fmt.Appendf(purge, "-%d;", 100_000+i)
			}
		}
		s.Commit(all, []Delta{{1, large + small + 1}}, nil)
		s.Commit([]byte("+1,;"), nil, nil)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		l.keep(wlog.Settling)                                               // with space for everything that settles
		s.Commit([]byte("+5000,;"), []Delta{{s.Extent(), 1}}, nil)          // waits
		s.Commit([]byte("-1;+2,;"), []Delta{{1, -1}, {s.Extent(), 1}}, nil) // so does a move
		synctest.Wait()
		h := &history{}
		s.CommitAs(wlog.Settling, purge, nil, &accounting{s, Delta{1, -large}, h.as("purge")})
		for i := range small {
			s.Commit(fmt.Appendf(nil, "-%d;", 100_000+large+i), []Delta{{1, -1}}, nil)
			time.Sleep(5 * time.Millisecond)
		}
		if got := h.durable(); len(got) != 1 {
			t.Errorf("a purge of %d bytes was not written in %v, with space for it", len(purge), small*5*time.Millisecond)
		}
		l.keep(wlog.Bringing)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
	})
}

// A purge that frees nothing at the log's front went before the settlements that free it, and took the space in which they would have
// fitted: the disk stayed full for ever.
func TestAPurgeDoesNotTakeTheSpaceOfTheFront(t *testing.T) {
	t.Run("purge", func(t *testing.T) { spaceOfTheFront(t, 150) })
	t.Run("acknowledgements of 75 messages each", func(t *testing.T) { spaceOfTheFront(t, 75) })
}

func spaceOfTheFront(t *testing.T, together int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const front, behind = 100, 150
		l := &memLog{hoard: true}
		s := open(t, l, Options{Extent: 1, Operations: operations})
		var first, second, purge []byte
		for i := range front {
			first = fmt.Appendf(first, "+%d,;", 1000+i)
		}
		for i := range behind {
			second, purge = fmt.Appendf(second, "+%d,;", 2000+i), fmt.Appendf(purge, "-%d;", 2000+i)
		}
		s.Commit(first, []Delta{{1, front}}, nil)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		s.Commit(second, []Delta{{2, behind + 1}}, nil) // one of these stays
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		left := 1000
		l.mu.Lock()
		l.fits = func(size int) bool { return size <= left }
		l.written = func(entry string) { left -= len(entry) }
		l.mu.Unlock()
		l.trimmed = func(wlog.Index) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			left += len(first)
			return nil
		}
		l.keep(wlog.Settling)
		s.Commit([]byte("+5000,;"), []Delta{{s.Extent(), 1}}, nil)
		synctest.Wait()
		h := &history{}
		if together == behind {
			s.CommitAs(wlog.Settling, purge, nil, &accounting{s, Delta{2, -behind}, h.as("purge")})
		} else {
			each := len(purge) / (behind / together)
			for ; len(purge) > 0; purge = purge[each:] {
				s.Commit(purge[:each], []Delta{{2, -int64(together)}}, nil)
			}
		}
		for i := range front {
			s.Commit(fmt.Appendf(nil, "-%d;", 1000+i), []Delta{{1, -1}}, nil)
		}
		time.Sleep(time.Minute)
		if n := len(l.state()); n > 1 {
			t.Errorf("%d bytes are left, %d messages", left, n)
		}
		l.mu.Lock()
		l.fits = nil
		l.mu.Unlock()
		l.limit(1 << 20)
		l.keep(wlog.Bringing)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
	})
}
