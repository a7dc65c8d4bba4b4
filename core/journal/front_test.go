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
