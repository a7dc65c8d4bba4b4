package journal

import (
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

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
