package journal

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// filled is a shard with the record 1 in its log, in which the record 2 waits for
// space.
func filled(t *testing.T, l *memLog, o Options) (*Writer, *history) {
	t.Helper()
	s, h := open(t, l, o), &history{}
	s.Commit([]byte("+1,;"), []Delta{{s.Extent(), 4}}, h.as("+1,;"))
	synctest.Wait()
	l.keep(wlog.Moving)
	s.Commit([]byte("+2,;"), []Delta{{s.Extent(), 4}}, h.as("+2,;"))
	synctest.Wait()
	return s, h
}

// What brings more waited at the head of the line for space, and what settles
// waited behind it for good, though it would have made some.
func TestWhatSettlesOvertakesWhatWaitsForSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{hoard: true}
		s, h := filled(t, l, Options{})
		for _, ops := range []string{"-1;", "-2;"} {
			s.Commit([]byte(ops), []Delta{{1, -4}}, h.as(ops))
			time.Sleep(time.Second)
			if got := l.bodies(); got[len(got)-1] != ops {
				t.Errorf("the log ends with %q, want %q", got[len(got)-1], ops)
			}
		}
		if got, want := h.durable(), []string{"+1,;", "-1;", "-2;"}; !slices.Equal(got, want) {
			t.Errorf("durable are %v, want %v", got, want)
		}
		if st := s.Stats(); st.Live != 0 || !st.Full || s.CaughtUp() == nil {
			t.Errorf("got %+v", st)
		}
		l.keep(wlog.Bringing)
		time.Sleep(time.Second)
		if got, want := h.durable(), []string{"+1,;", "-1;", "-2;", "+2,;"}; !slices.Equal(got, want) {
			t.Errorf("durable are %v, want %v", got, want)
		}
		if got := l.state(); len(got) > 0 {
			t.Errorf("a restart would bring back %v, which was settled", got)
		}
		if st := s.Stats(); st.Pending != 0 || st.Live != 0 || st.Full {
			t.Errorf("got %+v", st)
		}
	})
}

// A message that left its queue before it was durable there was in both queues when
// the power went after its arrival was written at last, and before what had overtaken
// that was written again. Nor may a kill between any two entries bring back anything
// that was settled, by way of a move that waited or of others that are divided.
func TestWhatWasOvertakenIsWrittenWithWhatOvertookIt(t *testing.T) {
	for _, tt := range []struct {
		name string
		then []string // what is committed while +2 waits for space
		want []string // the entries in the end
	}{
		{"dead-lettered", []string{"-2;+3,;"}, []string{"+1,;", "-2;+3,;", "+2,;-2;+3,;"}},
		{"and settled there", []string{"-2;+3,;", "-3;"}, []string{"+1,;", "-2;+3,;", "-3;", "+2,;-2;+3,;-3;"}},
		{"others wait", []string{"+4,;", "-2;", "-4;"}, []string{"+1,;", "-2;", "-4;", "+2,;-2;-4;", "+4,;-2;-4;"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &memLog{hoard: true}
				s, _ := filled(t, l, Options{})
				for _, ops := range tt.then {
					var live []Delta
					fold(ops, func(int, string) { live = append(live, Delta{1, 4}) }, func(int) { live = append(live, Delta{1, -4}) })
					s.Commit([]byte(ops), live, nil)
					time.Sleep(time.Second)
				}
				l.keep(wlog.Bringing)
				time.Sleep(time.Second)
				if err := s.Sync(); err != nil {
					t.Error(err)
				}
				there, gone := records{}, map[int]bool{}
				for _, entry := range l.bodies() {
					there.fold(entry)
					fold(entry, func(int, string) {}, func(id int) { gone[id] = true })
					for id := range there {
						if gone[id] {
							t.Errorf("record %d is back after entry %q", id, entry)
						}
					}
				}
				if got := l.bodies(); !slices.Equal(got, tt.want) {
					t.Errorf("the log holds %q, want %q", got, tt.want)
				}
				if st := s.Stats(); st.Pending != 0 {
					t.Errorf("got %+v", st)
				}
			})
		})
	}
}

// A message that goes to another queue brings as much as it settles: it overtakes,
// too, as its new place may be what a consumer empties. What follows from nothing
// live stays where it is.
func TestWhatOvertakes(t *testing.T) {
	for _, tt := range []struct {
		name     string
		ops      string
		live     []Delta
		overtake bool
	}{
		{"a message goes to another queue", "-1;+3,...;", []Delta{{1, -4}, {1, 7}}, true},
		{"a small one is settled by way of a large one", "-1;+3,.................;", []Delta{{1, -4}, {1, 20}}, false},
		{"a message comes", "+3,;", []Delta{{1, 4}}, false},
		{"neither", "3", nil, false},
		{"nothing at all: a barrier", "", nil, false},
		{"a queue is deleted", "", []Delta{{1, -4}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &memLog{hoard: true}
				s, h := filled(t, l, Options{})
				s.Commit([]byte(tt.ops), tt.live, h.as("it"))
				time.Sleep(time.Second)
				if got := slices.Contains(h.durable(), "it"); got != tt.overtake {
					t.Errorf("durable: %v, want %v", got, tt.overtake)
				}
				l.keep(wlog.Bringing)
				time.Sleep(time.Second)
				want := after("+1,;", "+2,;", tt.ops)
				if got := l.state(); !maps.Equal(got, want) {
					t.Errorf("the log says %v, want %v", got, want)
				}
				if !slices.Contains(h.durable(), "it") || len(h.outcomes()) != 3 {
					t.Errorf("got %v", h.outcomes())
				}
			})
		})
	}
}

// What is moved out of the way of what died is written once, at once, whatever
// waits before it.
func TestMovesOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{hoard: true}
		var waiting atomic.Int64
		s, _ := filled(t, l, Options{Waiting: &waiting})
		before := s.Stats().Pending
		s.Relocate([]byte("+1,moved;"), []Delta{{1, 9}, {1, -4}})
		if err := s.WaitRelocated(); err != nil {
			t.Error(err)
		}
		if st := s.Stats(); st.Pending != before || st.Live != 9+4 {
			t.Errorf("got %+v", st)
		}
		l.keep(wlog.Bringing)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
		if got := waiting.Load(); got != 0 {
			t.Errorf("%d bytes wait for nothing", got)
		}
		if got, want := strings.Join(l.bodies(), " "), "+1,; +1,moved; +2,;"; got != want {
			t.Errorf("the log holds %s, want %s", got, want)
		}
	})
}

// A move for which there is no space kept what it moved where it was, even after
// that was settled: its old place would be live for good. When it needs no space any
// more nothing waits, and if nothing comes after it nobody else would say so: the
// alarm stayed, and with it the publishers who could have ended it.
func TestAMoveOfWhatWasSettledNeedsNoSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trimmed wlog.Index
		l := &memLog{hoard: true, trimmed: func(before wlog.Index) error { trimmed = before; return nil }}
		var full []bool
		s := open(t, l, Options{Extent: 1, OnFull: func(f bool) { full = append(full, f) }})
		s.Commit([]byte("+1,;"), []Delta{{1, 4}}, nil)
		synctest.Wait()
		l.keep(wlog.Settling)
		s.Relocate([]byte("+1,;"), []Delta{{2, 4}, {1, -4}})
		time.Sleep(time.Second)
		s.Commit([]byte("-1;"), []Delta{{2, -4}}, nil)
		if err := s.WaitRelocated(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if st := s.Stats(); st.Live != 0 || st.Pending != 0 || trimmed == 0 {
			t.Errorf("trimmed to %d, %+v", trimmed, st)
		}
		if n := len(full); n == 0 || full[n-1] || s.Stats().Full {
			t.Errorf("it was said to be full: %v, and is %+v", full, s.Stats())
		}
		if got := l.state(); len(got) > 0 {
			t.Errorf("a restart would bring back %v", got)
		}
	})
}

// The alarm ended, and was there again, when a move that waited needed no space any
// more, or there was enough for the first in the line, though others waited behind it
// for which there was none.
func TestTheAlarmDoesNotBlink(t *testing.T) {
	for _, tt := range []struct {
		name  string
		first func(s *Writer)
		clear func(s *Writer, l *memLog) // has the first wait no longer
	}{
		{
			"a move that needs no space any more",
			func(s *Writer) { s.Relocate([]byte("+1,;"), []Delta{{2, 4}, {1, -4}}) },
			func(s *Writer, _ *memLog) { s.Commit([]byte("-1;"), []Delta{{2, -4}}, nil) },
		},
		{
			"one for which there is space",
			func(s *Writer) { s.Commit([]byte("+2,;"), []Delta{{1, 4}}, nil) },
			func(_ *Writer, l *memLog) { l.limit(4) },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &memLog{hoard: true}
				var full []bool
				s, h := open(t, l, Options{Extent: 1, OnFull: func(f bool) { full = append(full, f) }}), &history{}
				s.Commit([]byte("+1,;"), []Delta{{1, 4}}, nil)
				synctest.Wait()
				l.limit(3)
				tt.first(s)
				time.Sleep(time.Second)
				s.Commit([]byte("+3,large;"), []Delta{{1, 9}}, h.as("behind"))
				tt.clear(s, l)
				time.Sleep(time.Second)
				synctest.Wait()
				if !slices.Equal(full, []bool{true}) || len(h.outcomes()) > 0 {
					t.Errorf("while one waits: %v, %v", full, h.outcomes())
				}
				l.limit(100)
				time.Sleep(time.Second)
				synctest.Wait()
				if !slices.Equal(full, []bool{true, false}) || !slices.Contains(h.durable(), "behind") {
					t.Errorf("in the end: %v, durable %v", full, h.durable())
				}
			})
		})
	}
}

// While the disk is full, notes wait as everything does, but not without end.
func TestNotesOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{}
		s, _ := filled(t, l, Options{Pending: 20})
		noted := 0
		for range 100 {
			if s.TryCommit([]byte("n;")) {
				noted++
			}
		}
		if st := s.Stats(); noted != 8 || st.Pending != 20 {
			t.Errorf("%d notes were taken, and %d bytes wait; want 8 and 20", noted, st.Pending)
		}
		l.keep(wlog.Bringing)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
		if !s.TryCommit([]byte("n;")) {
			t.Error("a note is not taken although the disk is not full any more")
		}
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
		if got, want := strings.Join(l.bodies(), " "), "+1,; +2,; n;n;n;n;n;n;n;n; n;"; got != want {
			t.Errorf("the log holds %s, want %s", got, want)
		}
	})
}

// A shard that is closed while the disk is full writes what there is room for: what
// had been acknowledged was back after a restart. What is dropped was not
// confirmed, which is no failure.
func TestCloseOnAFullDiskSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{hoard: true}
		s, h := filled(t, l, Options{OnFailed: func(err error) { t.Error(err) }, OnFull: func(full bool) {
			if !full {
				t.Error("the disk is not full any more")
			}
		}})
		s.Commit([]byte("-1;"), []Delta{{1, -4}}, nil)
		if err := s.Close(t.Context()); !errors.Is(err, wlog.ErrFull) {
			t.Errorf("got error %v, want %v", err, wlog.ErrFull)
		}
		if got := l.state(); len(got) > 0 {
			t.Errorf("a restart would bring back %v", got)
		}
		if got := h.outcomes(); len(got) != 2 || !errors.Is(got[1].err, wlog.ErrFull) {
			t.Errorf("got %v, want that the second failed", got)
		}
	})
}

// after is what there is after operations.
func after(ops ...string) records {
	r := records{}
	for _, o := range ops {
		r.fold(o)
	}
	return r
}

// On a small disk less may be left than all that moves at once takes: then nothing moved at all, though it would have made space
// piece by piece.
func TestMovesOvertakeOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{hoard: true}
		s, h := open(t, l, Options{}), &history{}
		for id := range 3 {
			s.Commit(fmt.Appendf(nil, "+%d,;", id+1), []Delta{{s.Extent(), 4}}, nil)
		}
		synctest.Wait()
		l.keep(wlog.Moving)
		s.Commit([]byte("+4,;"), []Delta{{s.Extent(), 4}}, nil)
		synctest.Wait()
		l.limit(len("-1;+5,;"))
		want := []string{"-1;+5,;", "-2;+6,;", "-3;+7,;"}
		for _, ops := range want {
			s.Commit([]byte(ops), []Delta{{1, -4}, {1, 4}}, h.as(ops))
		}
		time.Sleep(5 * time.Second)
		if got := h.durable(); !slices.Equal(got, want) {
			t.Errorf("durable are %v, want %v", got, want)
		}
		l.keep(wlog.Bringing)
		l.limit(1000)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
		if got, want := l.state(), (records{4: "+4,;", 5: "+5,;", 6: "+6,;", 7: "+7,;"}); !maps.Equal(got, want) {
			t.Errorf("the log amounts to %v, want %v", got, want)
		}
	})
}

// A move whose record had been settled while it waited for space was written with that record, and again with each entry that it had
// overtaken: on a full disk there was no space for it, and what it frees stayed.
func TestWhatIsSettledWhileItWaitsIsNotWritten(t *testing.T) {
	for _, tt := range []struct {
		name  string
		early bool     // +2 is committed before space is low
		then  []string // what is committed while +2 waits for space
		want  []string // the entries in the end
	}{
		{"brought", false, []string{"-2;"}, []string{"+1,;", "-2;"}},
		{"brought before space was low", true, []string{"-2;"}, []string{"+1,;", "-2;"}},
		{"written before", false, []string{"-1;"}, []string{"+1,;", "-1;", "+2,larger;"}},
		{"moved", false, []string{"-1;+3,larger;", "-3;"}, []string{"+1,;", "-1;-3;", "+2,larger;"}},
		{"moved twice", false, []string{"-1;+3,larger;", "-3;+4,larger;", "-4;"}, []string{"+1,;", "-1;-3;-4;", "+2,larger;"}},
		{"one of two", false, []string{"+3,larger;+4,larger;", "-3;"}, []string{"+1,;", "-3;", "+2,larger;-3;", "+3,larger;+4,larger;-3;"}},
		{"the other, too", false, []string{"+3,larger;+4,larger;", "-3;", "-4;"}, []string{"+1,;", "-3;", "-4;", "+2,larger;"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &memLog{hoard: true}
				s, h := open(t, l, Options{Operations: operations}), &history{}
				places := map[int]Delta{}
				commit := func(ops string) {
					var live []Delta
					fold(ops, func(id int, op string) {
						places[id] = Delta{s.Extent(), int64(len(op))}
						live = append(live, places[id])
					}, func(id int) { live = append(live, Delta{places[id].Extent, -places[id].Bytes}) })
					s.Commit([]byte(ops), live, h.as(ops))
					synctest.Wait()
				}
				commit("+1,;")
				l.limit(9) // that is enough for settlements
				if !tt.early {
					s.SetLowSpace(true)
				}
				commit("+2,larger;")
				for _, ops := range tt.then {
					commit(ops)
					time.Sleep(time.Second)
				}
				l.limit(1000)
				s.SetLowSpace(false)
				if err := s.Sync(); err != nil {
					t.Error(err)
				}
				if got, want := l.state(), after(append([]string{"+1,;", "+2,larger;"}, tt.then...)...); !maps.Equal(got, want) {
					t.Errorf("the log says %v, want %v", got, want)
				}
				if got := l.bodies(); !slices.Equal(got, tt.want) {
					t.Errorf("the log holds %q, want %q", got, tt.want)
				}
				if st := s.Stats(); st.Pending != 0 || len(h.outcomes()) != 2+len(tt.then) {
					t.Errorf("%+v, %v", st, h.outcomes())
				}
			})
		})
	}
}

// What waited for space kept the extent of its commit from being trimmed, and so all that died behind it, though nothing of it was
// in the log.
func TestWhatWaitsKeepsNothingFromBeingTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{}
		s := open(t, l, Options{Extent: 4, Operations: operations})
		for id := range 3 {
			s.Commit(fmt.Appendf(nil, "+%d,;", id+1), []Delta{{s.Extent(), 4}}, nil)
			synctest.Wait()
		}
		l.limit(3)
		s.SetLowSpace(true)
		number := s.Extent()
		s.Commit([]byte("+4,;"), []Delta{{number, 4}}, nil)
		if number == s.Extent() {
			t.Error("two commits may have the same voucher")
		}
		for id := range 3 {
			s.Commit(fmt.Appendf(nil, "-%d;", id+1), []Delta{{uint32(id + 1), -4}}, nil)
			time.Sleep(time.Second)
		}
		if st := s.Stats(); st.Live != 0 || st.LogBytes != 0 || len(l.bodies()) > 0 || s.Home(number) != 0 {
			t.Errorf("while one waits: %q, %+v", l.bodies(), st)
		}
		l.limit(4)
		s.SetLowSpace(false)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
		if got, st := l.bodies(), s.Stats(); !slices.Equal(got, []string{"+4,;"}) || st.Live != 4 || s.Home(number) == 0 {
			t.Errorf("in the end: %q in extent %d, %+v", got, s.Home(number), st)
		}
		s.Commit([]byte("-4;"), []Delta{{number, -4}}, nil)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
		if st := s.Stats(); st.Live != 0 || s.Home(number) != 0 {
			t.Errorf("after it was settled: %+v", st)
		}
	})
}

// Entries before their turn were longer than others may be: on a small disk the end of each segment stayed unused.
func TestWhatOvertakesIsNoLongerThanAnEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{hoard: true}
		s, _ := filled(t, l, Options{Entry: 12, Operations: operations})
		for range 10 {
			s.CommitAs(wlog.Moving, []byte("-1;"), nil, nil)
		}
		time.Sleep(5 * time.Second)
		if got, want := strings.Join(l.bodies(), " "), "+1,; -1;-1;-1;-1; -1;-1;-1;-1; -1;-1;"; got != want {
			t.Errorf("the log holds %s, want %s", got, want)
		}
		l.keep(wlog.Bringing)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
	})
}

// A record that was relocated while its commit waited, from before space was low, has the number of its copy, which does not wait.
func TestWhatIsRelocatedWhileItWaitsStaysSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{hoard: true}
		s := open(t, l, Options{Operations: operations})
		l.limit(19)
		s.Commit([]byte("+2,larger;+3,larger;"), []Delta{{s.Extent(), 20}}, nil)
		synctest.Wait()
		number := s.Extent()
		s.Relocate([]byte("+2,larger;"), []Delta{{number, 10}, {1, -10}})
		time.Sleep(time.Second)
		s.Commit([]byte("-2;"), []Delta{{number, -10}}, nil)
		time.Sleep(time.Second)
		l.limit(1000)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
		if got, want := strings.Join(l.bodies(), " "), "+2,larger; -2; +2,larger;+3,larger;-2;"; got != want {
			t.Errorf("the log holds %s, want %s", got, want)
		}
	})
}

// A record that got longer while its commit waited passed for written: a copy of it could be made, and it was there again after it was
// settled, when its commit was written.
func TestWhatGetsLongerWhileItWaitsIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{hoard: true}
		s := open(t, l, Options{Operations: operations})
		s.Commit([]byte("+1,larger;"), []Delta{{s.Extent(), 10}}, nil)
		synctest.Wait()
		l.limit(10)
		s.SetLowSpace(true)
		number := s.Extent()
		s.Commit([]byte("+2,larger;+3,larger;"), []Delta{{number, 20}}, nil)
		synctest.Wait()
		s.Commit([]byte("-1;=2,x;"), []Delta{{1, -10}, {number, 2}}, nil)
		time.Sleep(time.Second)
		if home := s.Home(number); len(l.bodies()) != 2 || home != 0 {
			t.Errorf("%q: it is said to lie in extent %d", l.bodies(), home)
		}
		s.Commit([]byte("-2;"), []Delta{{number, -12}}, nil)
		s.Commit([]byte("-3;"), []Delta{{number, -10}}, nil)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
		if st := s.Stats(); st.Live != 0 || st.Pending != 0 || len(l.state()) > 0 {
			t.Errorf("in the end: %q, %+v", l.bodies(), st)
		}
	})
}

// A message that was moved before space was low, and relocated while that waited, was in both places until the move was written.
func TestWhatIsRelocatedWhileItsMoveWaitsIsInOnePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{hoard: true}
		s := open(t, l, Options{Operations: operations})
		s.Commit([]byte("+1,;"), []Delta{{1, 4}}, nil)
		synctest.Wait()
		l.limit(13)
		s.Commit([]byte("-1;+2,large;=2,x;"), []Delta{{1, -4}, {1, 9}}, nil)
		synctest.Wait()
		number := s.Extent()
		s.Relocate([]byte("+2,large;"), []Delta{{number, 9}, {1, -9}})
		time.Sleep(time.Second)
		if got := l.state(); got[1] != "" && got[2] != "" {
			t.Errorf("after the relocation there are %v: %q", got, l.bodies())
		}
		l.limit(1000)
		s.Commit([]byte("-2;"), []Delta{{number, -9}}, nil)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
		if st := s.Stats(); st.Live != 0 || len(l.state()) > 0 {
			t.Errorf("in the end: %q, %+v", l.bodies(), st)
		}
	})
}

// What marks records lay before one that waited for space: it could be trimmed, and the record was not marked. Only the newest mark is
// written again, and only with what it is about.
func TestTheNewestMarkIsWrittenWithWhatItMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{hoard: true}
		s := open(t, l, Options{Operations: operations})
		s.Commit([]byte("+1,;"), []Delta{{s.Extent(), 4}}, nil)
		synctest.Wait()
		l.keep(wlog.Moving)
		s.SetLowSpace(true)
		waits := s.Extent()
		s.Commit([]byte("+2,;"), []Delta{{waits, 4}}, nil)
		s.Commit([]byte("+3,;"), []Delta{{s.Extent(), 4}}, nil)
		s.Commit([]byte("-1;^2;"), []Delta{{1, -4}}, nil)
		time.Sleep(time.Second)
		for _, ops := range []string{"^3;", "^4;"} {
			s.CommitAs(wlog.Settling, []byte(ops), nil, nil)
			time.Sleep(time.Second)
		}
		s.Commit([]byte("-2;"), []Delta{{waits, -4}}, nil)
		time.Sleep(time.Second)
		l.keep(wlog.Bringing)
		s.SetLowSpace(false)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
		s.Commit([]byte("+5,;"), []Delta{{s.Extent(), 4}}, nil)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
		if got, want := strings.Join(l.bodies(), " "), "+1,; -1;^2; ^3; ^4; -2; +3,;^4; +5,;"; got != want {
			t.Errorf("the log holds %s, want %s", got, want)
		}
	})
}
