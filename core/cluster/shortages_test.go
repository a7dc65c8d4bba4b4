package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A node's report counts for ten seconds, unless a newer one replaces it. A shard is short of space while any node's report says so.
func TestShortages(t *testing.T) {
	var said []string
	s := shortages{crowded: func(shard uint32, low bool) { said = append(said, fmt.Sprint(shard, low)) }}
	begin := hook.Instant(time.Hour)
	for _, step := range []struct {
		after time.Duration
		node  wlog.NodeID
		short []uint32
		want  string
	}{
		{0, 1, nil, ""},
		{0, 2, []uint32{3, 1}, "1 true,3 true"},
		{time.Second, 1, []uint32{3}, "1 true,3 true"},
		{2 * time.Second, 2, nil, "3 true,1 false"},
		{3 * time.Second, 1, nil, "3 false"},
		{4 * time.Second, 1, []uint32{2}, "2 true"},
		{14 * time.Second, 2, nil, "2 true"},
		{15 * time.Second, 2, nil, "2 false"}, // node 1 has been silent for more than ten seconds
	} {
		said = nil
		s.heard(step.node, step.short, begin.Add(step.after))
		if got := strings.Join(said, ","); got != step.want {
			t.Errorf("after %v, node %d lacks space for %v: %s, want %s", step.after, step.node, step.short, got, step.want)
		}
	}
}

// A shortage of the local logs is reported to the other nodes, and to the local listener.
func TestOwnShortages(t *testing.T) {
	var heard []uint32
	var s shortages
	s.heard(1, []uint32{1}, 0) // there is no listener
	say := s.note(func(shard uint32, _ *seg.Shortage) { heard = append(heard, shard) })
	low := &seg.Shortage{}
	say(3, low)
	say(1, low)
	say(3, low)
	say(7, nil)
	if got := s.own(); !slices.Equal(got, []uint32{1, 3}) {
		t.Errorf("got %v", got)
	}
	say(3, nil)
	if got := s.own(); !slices.Equal(got, []uint32{1}) || !slices.Equal(heard, []uint32{3, 1, 3, 7, 3}) {
		t.Errorf("got %v, heard %v", got, heard)
	}
	s.note(nil)(1, nil)
	if got := s.own(); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}
