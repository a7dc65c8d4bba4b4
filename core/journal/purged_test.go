package journal

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// A purge accounts for a part of what it settles in later commits. One of these went before it where not all settlements fitted, because it
// freed the log's front: the log was trimmed while the purge was not in it.
func TestNothingIsTrimmedBeforeThePurgeIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{}
		s := open(t, l, Options{Extent: 1, Operations: operations})
		for i, op := range []string{"+4,;", "+9,;"} {
			s.Commit([]byte(op), []Delta{{uint32(i + 1), 4}}, nil)
			if err := s.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		l.limit(12)
		l.keep(wlog.Settling)
		s.Commit([]byte("+7,;"), []Delta{{s.Extent(), 4}}, nil)
		time.Sleep(time.Second)
		s.Commit([]byte("_9;_4;_20;_21;_22;_23;"), []Delta{{2, -4}}, nil) // does not fit
		s.Commit(nil, []Delta{{1, -4}}, nil)
		time.Sleep(10 * time.Second)
		if r := l.state(); r[4] == "" {
			t.Errorf("a part was trimmed before the purge was written: %v", r)
		}
		l.limit(1 << 20)
		l.keep(wlog.Bringing)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	})
}

// Such a commit, before its purge, made a move void whose record the purge settles: the message was in neither queue.
func TestNoMoveIsVoidBeforeThePurgeIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{hoard: true}
		s := open(t, l, Options{Extent: 1, Operations: operations})
		s.Commit([]byte("+1,;"), []Delta{{1, 4}}, nil)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		s.Commit([]byte("+9,;"), []Delta{{2, 4}}, nil)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		s.SetLowSpace(true)
		l.limit(12)
		l.keep(wlog.Settling)
		s.Commit([]byte("+7,;"), []Delta{{s.Extent(), 4}}, nil)
		time.Sleep(time.Second)
		v := s.Extent()
		s.Commit([]byte("-1;+4,;"), []Delta{{1, -4}, {v, 4}}, nil)
		s.Commit([]byte("_9;_4;_20;_21;_22;_23;"), []Delta{{2, -4}}, nil) // does not fit
		s.Commit(nil, []Delta{{v, -4}}, nil)
		time.Sleep(10 * time.Second)
		if r := l.state(); r[1] == "" && r[4] == "" {
			t.Errorf("the message is in neither place, and no entry has purged it: %v", r)
		}
		l.limit(1 << 20)
		l.keep(wlog.Bringing)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	})
}
