package peer

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

func TestSkewLevel(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		ahead  time.Duration
		before SkewLevel
		want   SkewLevel
	}{
		{0, Fine, Fine},
		{250 * ms, Fine, Fine},
		{251 * ms, Fine, Warned},
		{-251 * ms, Fine, Warned},
		{226 * ms, Warned, Warned},
		{225 * ms, Warned, Fine},
		{1000 * ms, Fine, Warned},
		{1001 * ms, Fine, Barred},
		{-1001 * ms, Warned, Barred},
		{901 * ms, Barred, Barred},
		{900 * ms, Barred, Warned},
		{0, Barred, Fine},
	} {
		if got := level(tc.ahead, tc.before); got != tc.want {
			t.Errorf("%v after level %d: level %d, want %d", tc.ahead, tc.before, got, tc.want)
		}
	}
}

// The median clock is right; of two, the slower one. A node that cannot reach the others knows nothing about its own clock.
func TestSkew(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct {
		name   string
		clocks []time.Duration
		want   []SkewLevel
		ahead  []time.Duration
	}{
		{"equal", []time.Duration{0, 0, 0}, []SkewLevel{Fine, Fine, Fine}, []time.Duration{0, 0, 0}},
		{"one is ahead", []time.Duration{2 * s, 0, 0}, []SkewLevel{Barred, Fine, Fine}, []time.Duration{2 * s, 0, 0}},
		{"one is behind", []time.Duration{0, -2 * s, 0}, []SkewLevel{Fine, Barred, Fine}, []time.Duration{0, -2 * s, 0}},
		{"all differ", []time.Duration{0, s / 2, 5 * s}, []SkewLevel{Warned, Fine, Barred}, []time.Duration{-s / 2, 0, 9 * s / 2}},
		{"two", []time.Duration{0, 2 * s}, []SkewLevel{Fine, Barred}, []time.Duration{0, 2 * s}},
		{"alone", []time.Duration{9 * s}, []SkewLevel{Fine}, []time.Duration{0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				for i, ahead := range tc.clocks {
					f.node(t, wlog.NodeID(i+1), func(o *Options) {
						clock := o.Clock
						o.Clock = func() hook.Instant { return clock().Add(ahead) }
					})
				}
				f.connect()
				time.Sleep(10 * time.Second)
				for i, n := range f.all {
					if got := n.Skew(); got != (Skew{tc.ahead[i], tc.want[i]}) {
						t.Errorf("node %d: %+v, want %v ahead and level %d", n.node.ID, got, tc.ahead[i], tc.want[i])
					}
					for _, st := range n.Status() {
						if want := tc.clocks[st.Node.ID-1] - tc.clocks[i]; !st.Clock || st.Offset != want {
							t.Errorf("node %d: node %d is %v ahead, want %v", n.node.ID, st.Node.ID, st.Offset, want)
						}
					}
				}
				f.close()
			})
		})
	}
}

// A node that lost the others is no longer barred: there is no evidence that its clock is wrong.
func TestSkewIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		one, two := f.node(t, 1), f.node(t, 2, func(o *Options) {
			clock := o.Clock
			o.Clock = func() hook.Instant { return clock().Add(2 * time.Second) }
		})
		f.connect()
		one.Close()
		time.Sleep(time.Minute)
		two.mu.Lock()
		defer two.mu.Unlock()
		if want := []SkewLevel{Barred, Fine}; !slices.Equal(two.skews, want) {
			t.Errorf("levels %v, want %v", two.skews, want)
		}
		two.wantLog(t, "the clock differs too much from those of the other nodes")
		go f.close()
	})
}

// The times of shards, and the shards that lack space at a node, reach the other nodes each second.
func TestTimesAreHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.node(t, 1, func(o *Options) { o.Times = func() []ShardTime { return []ShardTime{{2, 77}, {3, 78}} } }, func(o *Options) { o.Short = func() []uint32 { return []uint32{3} } })
		two := f.node(t, 2)
		f.connect()
		two.note(func() { two.heard, two.short = nil, nil })
		time.Sleep(10 * time.Second)
		two.note(func() {
			if len(two.heard) != 20 || two.heard[0] != (ShardTime{2, 77}) || two.heard[1] != (ShardTime{3, 78}) {
				t.Errorf("heard %v", two.heard)
			}
			if len(two.short) != 10 || two.short[0] != 3 {
				t.Errorf("heard that node 1 lacks space for %v", two.short)
			}
		})
		f.close()
	})
}

// The answer with the shortest trip gives the best estimate of a clock's offset.
func TestBestSample(t *testing.T) {
	var s samples
	if _, ok := s.best(); ok {
		t.Error("there is none")
	}
	for i := range 20 {
		s.add(sample{trip: time.Duration(100 - i%7), offset: time.Duration(i)})
	}
	if got, _ := s.best(); got.trip != 94 || got.offset != 13 {
		t.Errorf("got %+v", got)
	}
}
