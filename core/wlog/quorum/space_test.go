package quorum

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

func TestSpaceOfAMajority(t *testing.T) {
	const long = electionTicks + 1
	for name, c := range map[string]struct {
		voters []uint64
		states spaces
		want   space
	}{
		"alone":                           {[]uint64{1}, spaces{}, space{room: plenty}},
		"nobody has answered yet":         {[]uint64{1, 2, 3}, spaces{}, space{room: plenty}},
		"the better of two others counts": {[]uint64{1, 2, 3}, spaces{2: {room: 5, takes: wlog.Settling}, 3: {room: 7, takes: wlog.Moving}}, space{room: 7, takes: wlog.Moving}},
		"of four, two others are needed":  {[]uint64{1, 2, 3, 4}, spaces{2: {room: 5}, 3: {room: 7}, 4: {room: 9}}, space{room: 7}},
		"a silent node counts as full":    {[]uint64{1, 2, 3}, spaces{2: {room: 5}, 3: {room: 7, heard: long}}, space{room: 5}},
		"two of two others are silent":    {[]uint64{1, 2, 3}, spaces{2: {room: 5, heard: long}, 3: {room: 7, heard: long}}, space{room: plenty}},
		"an earlier version states none":  {[]uint64{1, 2, 3}, spaces{2: {room: 5}, 3: {room: plenty, takes: wlog.Settling}}, space{room: plenty}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.states.ofMajority(c.voters, 1); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// Answers state the space of their sender. A version that states no room has plenty, as it had before.
func TestSpaceInAnswers(t *testing.T) {
	for _, typ := range []raftpb.MessageType{raftpb.MsgAppResp, raftpb.MsgHeartbeatResp} {
		b := encode(&raftpb.Message{Type: &typ, From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(7))})
		if got := spaceOf(b); got != (space{room: plenty}) {
			t.Errorf("%v without a statement: got %+v", typ, got)
		}
		for _, s := range []space{{}, {room: 3 << 20, takes: wlog.Settling}, {room: plenty}} {
			said := encode(&raftpb.Message{Type: &typ, From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(7))})
			s.say(said)
			m, err := decode(said, 1, 2)
			if err != nil || m.GetCommit() != 0 || spaceOf(said) != s {
				t.Errorf("%v with %+v: got %+v in %v, %v", typ, s, spaceOf(said), m, err)
			}
		}
	}
}
