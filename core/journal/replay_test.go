package journal

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/fake"
)

// A log that is opened with what was replayed of it before has the same extents as one that is replayed as a whole, and the caller gets
// each entry once, in order.
func TestOpenWithAReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := fake.New()
		one, two := storage.Node(1, 0), storage.Node(2, 0)
		o := Options{Extent: 100, Size: wlog.EntrySize}
		var bodies []string
		owned := func(n *fake.Node, o Options) *Writer {
			t.Helper()
			storage.SetOwner(1, n.ID())
			bodies = nil
			w, err := Open(t.Context(), n, 1, func(_ uint32, _ wlog.Index, ops []byte) error {
				bodies = append(bodies, string(ops))
				return nil
			}, o)
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		write := func(w *Writer, all string) {
			t.Helper()
			for _, c := range all {
				w.Commit([]byte{byte(c)}, nil, nil)
				if err := w.Sync(); err != nil {
					t.Fatal(err)
				}
			}
		}
		w := owned(one, o)
		write(w, "abcde")
		ahead := o
		ahead.Replay = NewReplay(two, o)
		replay := func() {
			t.Helper()
			err := two.Replay(t.Context(), 1, ahead.Replay.Last(), func(at wlog.Index, ops []byte) error {
				ahead.Replay.Entry(at, ops)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		replay()
		write(w, "f")
		replay()
		write(w, "ghi")
		resumed := owned(two, ahead)
		if len(bodies) != 3 || bodies[0] != "g" || bodies[2] != "i" {
			t.Errorf("%q were left, want g, h, i", bodies)
		}
		whole := owned(one, o)
		if len(bodies) != 9 {
			t.Errorf("there are %q", bodies)
		}
		if !reflect.DeepEqual(resumed.extents, whole.extents) || resumed.Extent() != whole.Extent() {
			t.Errorf("extents %+v, want %+v", resumed.extents, whole.extents)
		}
		whole.Recovered(nil) // nothing is live, so that all is trimmed
		write(whole, "jk")
		if err := whole.Sync(); err != nil {
			t.Fatal(err)
		}
		ahead.Replay = NewReplay(two, o)
		ahead.Replay.Entry(1, []byte("a"))
		storage.SetOwner(1, two.ID())
		if _, err := Open(t.Context(), two, 1, nil, ahead); !errors.Is(err, wlog.ErrTrimmed) {
			t.Errorf("behind entries that are gone: got %v", err)
		}
		for _, w := range []*Writer{w, resumed, whole} {
			_ = w.Close(t.Context())
		}
	})
}

func TestNothingIsTrimmedBeforeRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{}
		first := open(t, l, Options{})
		for i := range 10 {
			first.Commit(fmt.Appendf(nil, "+%d,;", i), []Delta{{Extent: first.Extent(), Bytes: 4}}, nil)
			synctest.Wait()
		}
		var at []string
		o := Options{Extent: 8, Slack: 1, Reclaim: func(uint32) { t.Error("reclaims") }}
		s, err := Open(t.Context(), memEngine{l}, 1, func(extent uint32, i wlog.Index, ops []byte) error {
			at = append(at, fmt.Sprintf("%d:%s", extent, ops))
			return nil
		}, o)
		if err != nil {
			t.Fatal(err)
		}
		if want := "1:+0,; 1:+1,; 2:+2,; 2:+3,; 3:+4,;"; strings.Join(at[:5], " ") != want {
			t.Errorf("replayed %v, want %v", at[:5], want)
		}
		if got := s.Extent(); got != 6 {
			t.Errorf("commits go to extent %d, want 6", got)
		}
		s.Commit([]byte("-0;-1;-2;"), nil, nil)
		synctest.Wait()
		if got := len(l.bodies()); got != 11 {
			t.Errorf("%d entries left, want all 11", got)
		}
		s.Recovered([]Delta{{Extent: 3, Bytes: 20}, {Extent: 4, Bytes: 20}, {Extent: 5, Bytes: 20}})
		synctest.Wait()
		if got := len(l.bodies()); got != 7 {
			t.Errorf("%d entries left, want the 7 from the third extent on", got)
		}
	})
}

func TestOpenSaysWhy(t *testing.T) {
	broken := errors.New("no such operation")
	l := &memLog{entries: []stored{{1, []byte("x")}}}
	_, err := Open(t.Context(), memEngine{l}, 7, func(uint32, wlog.Index, []byte) error { return broken }, Options{})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "shard 7") {
		t.Errorf("got %v", err)
	}
}
