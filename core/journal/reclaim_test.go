package journal

import (
	"testing"
	"testing/synctest"
	"time"
)

// An owner that does not answer is asked again after a second, not more often.
func TestReclaimIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{}
		w := newOwner(t, l, Options{Extent: 100, Slack: 200})
		w.enqueue(1, 10)
		fill := func() {
			for range 50 {
				w.s.Commit(make([]byte, 20), nil, nil)
				synctest.Wait()
			}
		}
		fill()
		fill()
		if got := w.s.Stats().Reclaims; got != 1 {
			t.Errorf("asked %d times at once, want once", got)
		}
		time.Sleep(roundTimeout)
		synctest.Wait()
		if got := w.s.Stats().Reclaims; got != 2 {
			t.Errorf("asked %d times in a second, want twice", got)
		}
		if w.move() != 1 {
			t.Error("it was not asked to move the one record there is")
		}
		synctest.Wait()
		if st := w.s.Stats(); st.LogBytes > 300 || st.Reclaims != 2 {
			t.Errorf("afterwards: %+v", st)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := w.s.Stats().Reclaims; got != 2 {
			t.Errorf("asked again with nothing left to gain")
		}
	})
}

// With little space left what died is worth having back, whatever lives before it:
// a backlog that nobody takes kept the disk full for good. Without much to gain
// nothing is moved, as that takes space that settles need.
func TestLittleSpaceIsSpentOnMovingWhereThatGivesItBack(t *testing.T) {
	for _, tt := range []struct {
		name    string
		padding int
		dead    int // records of 100 bytes
		asked   uint64
	}{
		{"one small record at the front", 10, 50, 1},
		{"a large record at the front", 500, 50, 1},
		{"little is dead", 500, 30, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newOwner(t, &memLog{}, Options{Extent: 1000, Slack: 100_000})
				w.enqueue(1, tt.padding)
				for range tt.dead {
					w.s.Commit(make([]byte, 100), nil, nil)
					synctest.Wait()
				}
				w.s.SetLowSpace(true)
				synctest.Wait()
				if st := w.s.Stats(); st.Reclaims != tt.asked || !st.Low || w.s.CaughtUp() == nil {
					t.Errorf("asked to move %d times, want %d; %+v", st.Reclaims, tt.asked, st)
				}
				w.move()
				behind := w.s.CaughtUp()
				w.s.SetLowSpace(false)
				<-behind
				synctest.Wait()
				if got := w.s.Stats().LogBytes < 1500; got != (tt.asked == 1) {
					t.Errorf("%d bytes are left", w.s.Stats().LogBytes)
				}
			})
		})
	}
}

// Where another node has too little space for its copy of the log, dead bytes are had back that were not worth it otherwise, and publishers do
// not wait for that.
func TestLogIsKeptSmallForOthers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		live  int // bytes
		dead  int
		asked uint64
	}{
		{"much is dead", 4000, 3000, 1},
		{"little is dead", 4000, 1500, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newOwner(t, &memLog{}, Options{Extent: 1000, Slack: 100_000})
				w.enqueue(1, tt.live)
				for range tt.dead / 100 {
					w.s.Commit(make([]byte, 100), nil, nil)
					synctest.Wait()
				}
				if st := w.s.Stats(); st.Reclaims != 0 {
					t.Errorf("before: %+v", st)
				}
				w.s.SetTight(true)
				synctest.Wait()
				if st := w.s.Stats(); st.Reclaims != tt.asked || st.Low || w.s.CaughtUp() != nil {
					t.Errorf("asked to move %d times, want %d; %+v", st.Reclaims, tt.asked, st)
				}
				w.move()
				synctest.Wait()
				if got := w.s.Stats().LogBytes < int64(tt.live+1500); got != (tt.asked == 1) {
					t.Errorf("%d bytes are left", w.s.Stats().LogBytes)
				}
			})
		})
	}
}
