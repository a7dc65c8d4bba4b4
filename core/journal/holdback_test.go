package journal

import (
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// A part of what a commit had moved before space was low, and which waited, was settled or relocated: a crash brought it back in its old
// place, or left it in both, while the rest waited.
func TestAPartOfAMoveDoesNotOvertakeIt(t *testing.T) {
	const moved = "-1;-2;+3,large;+4,large;"
	for _, tt := range []struct {
		name  string
		then  []string // what is committed while the move waits
		early string   // what is written of it before there is space
		want  string   // the log in the end
	}{
		{"a part is settled", []string{"-3;"}, "", moved + " -3;"},
		{"all is settled", []string{"-3;", "-4;"}, "-1;-2;-3;-4;", "-1;-2;-3;-4;"},
		{"one that is not moved is settled, too", []string{"-3;", "-5;"}, "-5;", "-5; " + moved + "-5; -3;"},
		{"a part is moved on", []string{"-3;+6,x;"}, "", moved + " -3;+6,x;"},
		{"that is settled", []string{"-3;+6,x;", "-6;"}, "", moved + " -3;+6,x;-6;"},
		{"both are moved on", []string{"-3;+6,x;", "-6;-4;"}, "-1;-2;-3;-6;-4;", "-1;-2;-3;-6;-4;"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &memLog{hoard: true}
				s := open(t, l, Options{Operations: operations})
				places := map[int]Delta{}
				commit := func(ops string) {
					var live []Delta
					in := s.Extent()
					fold(ops, func(id int, op string) {
						places[id] = Delta{in, int64(len(op))}
						live = append(live, places[id])
					}, func(id int) { live = append(live, Delta{places[id].Extent, -places[id].Bytes}) })
					s.Commit([]byte(ops), live, nil)
					synctest.Wait()
				}
				commit("+1,;+2,;+5,;")
				l.limit(len(moved) - 1)
				l.keep(wlog.Settling)
				commit(moved)
				for _, ops := range tt.then {
					commit(ops)
					time.Sleep(time.Second)
				}
				first := len("+1,;+2,;+5,; ")
				if got := (strings.Join(l.bodies(), " ") + " ")[first:]; strings.TrimSpace(got) != tt.early {
					t.Errorf("while it waits the log holds %s, want %s", got, tt.early)
				}
				l.keep(wlog.Bringing)
				l.limit(1000)
				if err := s.Sync(); err != nil {
					t.Error(err)
				}
				if got := strings.Join(l.bodies(), " ")[first:]; got != tt.want {
					t.Errorf("in the end the log holds %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// Settlements of parts of a move that waits were held back one by one where one commit at a time is tried, and for each of them all
// commits were looked at, several times.
func TestHoldingBackManyIsNotQuadratic(t *testing.T) {
	const n = 400
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		l := &memLog{}
		o := operations
		o.Records = func(ops []byte) (iter.Seq[Record], iter.Seq[Run]) { looks.Add(1); return recordsOf(ops) }
		s := open(t, l, Options{Operations: o})
		s.Commit([]byte("+1,;+2,....;"), []Delta{{1, 4}, {1, 8}}, nil)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		l.keep(wlog.Settling)
		ops, live := "-1;", []Delta{{1, -4}}
		for i := range n + 1 { // more than twice what it frees: it does not overtake
			op := fmt.Sprintf("+%d,;", 10+i)
			ops, live = ops+op, append(live, Delta{1, int64(len(op))})
		}
		s.Commit([]byte(ops), live, nil)
		for i := range n { // one part stays
			s.Commit(fmt.Appendf(nil, "-%d;", 10+i), []Delta{{1, -live[i+1].Bytes}}, nil)
		}
		s.Commit([]byte("-2;+5,....;"), []Delta{{1, -8}, {1, 8}}, nil) // a move that does not fit
		time.Sleep(110 * time.Millisecond)                             // one attempt with all of them, or some
		if got := looks.Load(); got < n || got > 80*n {                // some passes; one for each that is held back were 85,000
			t.Errorf("operations of %d commits were looked at %d times", n, got)
		}
		l.keep(wlog.Bringing)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	})
}

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
