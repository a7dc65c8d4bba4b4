package journal

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// A relocation of a part of a waiting move, and of many other records, was held back, and so was what settles the others, where not all
// settlements fitted: for good, though each would have fitted.
func TestARelocationHoldsBackNoSettlementsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		l := &memLog{hoard: true}
		s := open(t, l, Options{Extent: 1 << 20, Operations: operations})
		ops := "+1,;+2,;"
		live := []Delta{{1, 4}, {1, 4}}
		for i := range n {
			op := fmt.Sprintf("+%d,;", 100+i)
			ops, live = ops+op, append(live, Delta{1, 6})
		}
		s.Commit([]byte(ops), live, nil)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		before := len(l.bodies())
		l.limit(40)
		l.keep(wlog.Settling)
		// a move of two from before space was low, too large
		pad := "............................................................"
		s.Commit([]byte("-1;-2;+3,"+pad+";+4,"+pad+";"), []Delta{{1, -4}, {1, -4}, {1, 64}, {1, 64}}, nil)
		time.Sleep(time.Second)
		// a relocation of 3 and of the others
		v := s.Extent()
		if !IsVoucher(v) {
			t.Fatal("no voucher")
		}
		r, rl := []byte("+3,"+pad+";"), []Delta{{1, -64}, {v, 64}}
		for i := range n {
			r = fmt.Appendf(r, "+%d,;", 100+i)
			rl = append(rl, Delta{1, -6}, Delta{v, 6})
		}
		s.Relocate(r, rl)
		time.Sleep(time.Second)
		for i := range n {
			s.Commit(fmt.Appendf(nil, "-%d;", 100+i), []Delta{{v, -6}}, nil)
		}
		time.Sleep(10 * time.Second)
		settled := 0
		for _, e := range l.bodies()[before:] {
			fold(e, func(int, string) {}, func(int) { settled++ })
		}
		if settled < n {
			t.Errorf("only %d of %d settlements were written in 10 seconds; each would fit", settled, n)
		}
		l.limit(1 << 20)
		l.keep(wlog.Bringing)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
	})
}

// What settles the whole of a waiting move, a part of it by way of a move of that part, waited for good beside a commit that did not fit.
func TestWhatSettlesAMoveByWayOfAnotherGoesAlone(t *testing.T) {
	for _, by := range []string{"relocation", "move"} {
		t.Run(by, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &memLog{hoard: true}
				s, h := open(t, l, Options{Extent: 1 << 20, Operations: operations}), &history{}
				ops, live := "+1,;+2,;", []Delta{{1, 4}, {1, 4}}
				var large []byte
				var largeLive []Delta
				for i := range 20 {
					op := fmt.Sprintf("+%d,;", 100+i)
					ops, live = ops+op, append(live, Delta{1, 6})
					large = fmt.Appendf(large, "-%d;", 100+i)
					largeLive = append(largeLive, Delta{1, -6})
				}
				s.Commit([]byte(ops), live, nil)
				if err := s.Sync(); err != nil {
					t.Fatal(err)
				}
				l.limit(40)
				l.keep(wlog.Settling)
				pad := "............................................................"
				s.Commit([]byte("-1;-2;+3,"+pad+";+4,"+pad+";"), []Delta{{1, -4}, {1, -4}, {1, 64}, {1, 64}}, nil)
				time.Sleep(time.Second)
				v := s.Extent()
				if by == "relocation" {
					s.Relocate([]byte("+3,"+pad+";"), []Delta{{1, -64}, {v, 64}})
					s.Commit([]byte("-3;-4;"), []Delta{{v, -64}, {1, -64}}, h.as("it"))
				} else {
					s.Commit([]byte("-3;+5,"+pad+";"), []Delta{{1, -64}, {v, 64}}, nil)
					s.Commit([]byte("-4;-5;"), []Delta{{1, -64}, {v, -64}}, h.as("it"))
				}
				s.Commit(large, largeLive, nil) // does not fit
				time.Sleep(10 * time.Second)
				if len(h.durable()) != 1 {
					t.Error("what settles all of the move was not written in 10 seconds, though it fits")
				}
				l.limit(1 << 20)
				l.keep(wlog.Bringing)
				if err := s.Sync(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
