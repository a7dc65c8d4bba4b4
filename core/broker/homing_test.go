package broker

import (
	"slices"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/quorum"
	"github.com/curfewmq/curfew/sdk/hook"
)

// After rolling restarts three of four shards stayed on one node.
func TestShardsGoBackToTheirNodes(t *testing.T) {
	const now = hook.Instant(1e18)
	for name, tc := range map[string]struct {
		change func(s *quorum.ReplicaStatus, l *peer.Status)
		back   bool
	}{
		"started again":     {func(*quorum.ReplicaStatus, *peer.Status) {}, true},
		"just now":          {func(_ *quorum.ReplicaStatus, l *peer.Status) { l.Since = now - hook.Instant(time.Second) }, false},
		"long ago":          {func(_ *quorum.ReplicaStatus, l *peer.Status) { l.Since = now - hook.Instant(time.Hour) }, false}, // an operator may have moved the shard since
		"away":              {func(_ *quorum.ReplicaStatus, l *peer.Status) { l.Connected = false }, false},
		"silent":            {func(s *quorum.ReplicaStatus, _ *peer.Status) { s.Peers[0].Active = false }, false},
		"lacks entries":     {func(s *quorum.ReplicaStatus, _ *peer.Status) { s.Peers[0].Lag = 1 }, false},
		"has no vote yet":   {func(s *quorum.ReplicaStatus, _ *peer.Status) { s.Peers[0].Learner = true }, false},
		"owned elsewhere":   {func(s *quorum.ReplicaStatus, _ *peer.Status) { s.Role = quorum.Follower }, false},
		"where it is meant": {func(s *quorum.ReplicaStatus, _ *peer.Status) { s.Shard = 2 }, false},
	} {
		s := quorum.ReplicaStatus{
			Shard: 3, Role: quorum.Owner, Owner: 30, Voters: []wlog.NodeID{10, 20, 30},
			Peers: []quorum.PeerStatus{{Node: 10, Active: true}, {Node: 20, Active: true}},
		}
		l := peer.Status{Node: peer.Node{ID: 10}, Connected: true, Since: now - hook.Instant(time.Minute)}
		tc.change(&s, &l)
		var want []homecoming
		if tc.back {
			want = []homecoming{{3, 10}}
		}
		if got := (homes{}).displaced(now, []quorum.ReplicaStatus{s}, []peer.Status{{Node: peer.Node{ID: 20}, Connected: true, Since: 1}, l}); !slices.Equal(got, want) {
			t.Errorf("%s: %v go back, want %v", name, got, want)
		}
	}
}

// A shard that its preferred node had given away, because of an operator's transfer or a slow disk, went back and forth for a quarter of an
// hour.
func TestAShardThatItsNodeGaveAwayStays(t *testing.T) {
	const start = hook.Instant(1e18)
	home := homes{}
	shards := []quorum.ReplicaStatus{{
		Shard: 3, Role: quorum.Follower, Owner: 10, Voters: []wlog.NodeID{10, 20, 30}, Peers: []quorum.PeerStatus{{Node: 10, Active: true}},
	}}
	links := []peer.Status{{Node: peer.Node{ID: 10}, Connected: true, Since: start - hook.Instant(time.Minute)}}
	home.see(start, shards)
	shards[0].Role, shards[0].Owner = quorum.Owner, 30
	now := start + hook.Instant(10*time.Second)
	home.see(now, shards)
	if got := home.displaced(now, shards, links); len(got) > 0 {
		t.Errorf("%v go back though their node gave them away", got)
	}
	links[0].Since = now // the preferred node was restarted
	now += hook.Instant(10 * time.Second)
	home.see(now, shards)
	if got := home.displaced(now, shards, links); !slices.Equal(got, []homecoming{{3, 10}}) {
		t.Errorf("%v go back after their node was started again", got)
	}
}
