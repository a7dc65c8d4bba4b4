package quorum

import (
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/core/wlog"
)

// If Raft panics while entries wait to be proposed, they fail like all other entries. Their callers waited for ever, and the log could not
// be closed.
func TestEntriesFailWhenRaftIsWrong(t *testing.T) {
	inTrio(t, func(c *trio) {
		id := c.owner(0)
		l := c.open(0, id)
		r, busy := c.nodes[id].running(0), make(chan struct{})
		if err := r.do(func() { <-busy }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := r.do(func() { panic("raft is wrong") }); err != nil {
			t.Fatal(err)
		}
		var answers []<-chan wlog.Appended
		for n := range uint64(2) {
			answer, err := l.Begin(binary.LittleEndian.AppendUint64(nil, n), wlog.Bringing)
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, answer)
		}
		close(busy)
		synctest.Wait()
		for i, answer := range answers {
			select {
			case a := <-answer:
				if !errors.Is(a.Err, wlog.ErrLost) {
					t.Errorf("entry %d: %v", i, a.Err)
				}
			default:
				t.Fatalf("entry %d has no answer", i)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}
