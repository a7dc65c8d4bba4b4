package journal

import (
	"testing"

	"github.com/curfewmq/curfew/core/wlog"
)

func TestExtentsCloseWhenTheyAreFull(t *testing.T) {
	x := newExtents(100)
	for i, want := range []uint32{1, 1, 2, 2, 3} {
		if got := x.replay(wlog.Index(i+1), 60); got != want {
			t.Errorf("entry %d: in extent %d, want %d", i, got, want)
		}
	}
	if got := x.current(); got != 3 || x.bytes != 300 {
		t.Errorf("extent %d, %d bytes, want 3 and 300", got, x.bytes)
	}
}

func TestOnlyADeadPrefixIsTrimmed(t *testing.T) {
	x := newExtents(10)
	for e := range uint32(4) {
		x.add(Delta{Extent: e + 1, Bytes: 5})
		x.replay(wlog.Index(10*(e+1)), 10)
	}
	steps := []struct {
		dies   uint32
		before wlog.Index
	}{
		{dies: 3},
		{dies: 2},
		{dies: 1, before: 40},
		{dies: 4, before: 41},
	}
	for _, st := range steps {
		x.free(Delta{Extent: st.dies, Bytes: -5})
		if before, ok := x.trim(); before != st.before || ok != (st.before != 0) {
			t.Errorf("when extent %d died: trim before %d, %v, want %d", st.dies, before, ok, st.before)
		}
	}
	if x.bytes != 0 || x.live != 0 || len(x.list) != 1 || x.current() != 5 {
		t.Errorf("left: %d bytes, %d live, %d extents, the last %d", x.bytes, x.live, len(x.list), x.current())
	}
}

// Between the reading of the current extent's number and the commit that uses
// it, the extent may have filled up, died and been dropped.
func TestALateRecordHoldsEverythingBehindIt(t *testing.T) {
	x := newExtents(10)
	early := x.current()
	for i := range 3 {
		x.replay(wlog.Index(i+1), 10)
	}
	x.trim()
	x.add(Delta{Extent: 4, Bytes: 5})
	x.replay(4, 10)
	x.add(Delta{Extent: early, Bytes: 5})
	if before, ok := x.trim(); ok {
		t.Errorf("trimmed before %d with a record in extent %d, which is to come", before, early)
	}
	x.replay(5, 10)
	x.free(Delta{Extent: 4, Bytes: -5})
	if before, ok := x.trim(); ok {
		t.Errorf("trimmed before %d under a live record", before)
	}
	x.free(Delta{Extent: early, Bytes: -5})
	if before, _ := x.trim(); before != 6 {
		t.Errorf("trimmed before %d, want 6", before)
	}
}

func TestWrongAccountsAreNoticed(t *testing.T) {
	for name, wrong := range map[string]func(x *extents){
		"an extent that is yet to come": func(x *extents) { x.add(Delta{Extent: 2, Bytes: 1}) },
		"no extent":                     func(x *extents) { x.add(Delta{Extent: 0, Bytes: 1}) },
		"freed twice":                   func(x *extents) { x.free(Delta{Extent: 1, Bytes: -6}) },
		"freed where it never was":      func(x *extents) { x.free(Delta{Extent: 2, Bytes: -1}) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newExtents(10)
			x.add(Delta{Extent: 1, Bytes: 5})
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			wrong(&x)
		})
	}
}

func TestPlan(t *testing.T) {
	tests := []struct {
		name  string
		sizes [][2]int64 // bytes and live bytes of the closed extents
		slack int64
		most  int64
		want  uint32
	}{
		{name: "nothing there"},
		{name: "within the slack", sizes: [][2]int64{{100, 1}, {100, 0}}, slack: 200},
		{name: "live enough", sizes: [][2]int64{{100, 60}, {100, 60}}},
		{name: "one old record", sizes: [][2]int64{{100, 1}, {100, 0}, {100, 0}, {100, 0}, {100, 0}}, slack: 200, most: 100, want: 4},
		{name: "dead behind much that lives", sizes: [][2]int64{{100, 90}, {100, 90}, {100, 0}, {100, 0}, {100, 0}, {100, 0}}, most: 100, want: 1},
		{name: "as much as may be moved", sizes: [][2]int64{{100, 50}, {100, 50}, {100, 50}, {100, 0}, {100, 0}}, most: 100, want: 2},
		{name: "the first is moved whatever it holds", sizes: [][2]int64{{100, 90}, {100, 0}, {100, 0}}, most: 10, want: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := newExtents(100)
			for i, size := range tt.sizes {
				x.add(Delta{Extent: x.current(), Bytes: size[1]})
				x.replay(wlog.Index(i+1), size[0])
			}
			if got := x.plan(x.excess(tt.slack), tt.most); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

// What waits in a long queue belongs to the extents that it will lie in. It used to be accounted to the one that was current when the queue
// began, which was relocated as a whole.
func TestALongQueueHasManyExtents(t *testing.T) {
	x := newExtents(10)
	var queued []uint32
	for range 5 {
		in := x.begin()
		x.add(Delta{Extent: in, Bytes: 10})
		x.take(10)
		queued = append(queued, in)
	}
	if upTo := queued[4]; x.liveUpTo(upTo) != 50 || x.liveUpTo(upTo-1) != 40 || x.liveUpTo(1) != 10 {
		t.Errorf("entries of 10 bytes are in the extents %d", queued)
	}
	x.free(Delta{Extent: 2, Bytes: -10})
	x.append(queued[0], 100, 10)
	x.free(Delta{Extent: 1, Bytes: -10})
	if before, ok := x.trim(); !ok || before != 101 {
		t.Errorf("while the entry of extent 2, which nothing in is live any more, is still to be appended: trimmed before %d, %v, want 101", before, ok)
	}
	for i, in := range queued[1:] {
		x.append(in, wlog.Index(200+i), 10)
	}
	if before, ok := x.trim(); !ok || before != 201 {
		t.Errorf("trimmed before %d, %v, want 201", before, ok)
	}
	x.free(Delta{Extent: 3, Bytes: -10})
	x.free(Delta{Extent: 4, Bytes: -10})
	late := x.begin()
	x.free(Delta{Extent: 5, Bytes: -10})
	if before, ok := x.trim(); !ok || before != 204 {
		t.Errorf("nothing is live: trimmed before %d, %v, want 204", before, ok)
	}
	x.append(late, 300, 7)
	if x.bytes != 7 || x.list[0].queued != 0 || x.list[0].first != 300 {
		t.Errorf("the entry that was queued meanwhile: %+v", x)
	}
}
