package broker

import (
	"context"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/quorum"
	"github.com/curfewmq/curfew/sdk/hook"
)

// After a rolling restart one node may own most shards. Each shard has a preferred node. When that was restarted, it gets the shard back,
// unless a client would notice. The preferred node may lose the shard again, by an operator's transfer or because its disk is slow. Then
// the shard stays where it is until the preferred node is restarted again; otherwise it would go back and forth.
const (
	homePause    = 2 * time.Second  // between two checks
	homeSettled  = 5 * time.Second  // how long the preferred node must be back before it gets a shard,
	homeWithin   = 15 * time.Minute // and after which it no longer does
	homePatience = 10 * time.Second
)

// keepSpread transfers shards that this node owns back to their preferred nodes, until ctx ends.
func (m *member) keepSpread(ctx context.Context, st *store.Store, now clock.Clock) {
	ticker := time.NewTicker(homePause)
	defer ticker.Stop()
	home := homes{}
	for {
		select {
		case <-ticker.C:
			m.handBack(ctx, st, home, now())
		case <-ctx.Done():
			return
		}
	}
}

// handBack transfers one shard back, if there is one.
func (m *member) handBack(ctx context.Context, st *store.Store, home homes, now hook.Instant) {
	shards := m.Engine().Status()
	home.see(now, shards)
	for _, s := range home.displaced(now, shards, m.Status().Links) {
		if !movesFreely(st, s.shard) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, homePatience)
		err := m.Engine().Transfer(ctx, s.shard, s.to)
		cancel()
		if err != nil {
			m.log.Debug("a shard cannot go back to its preferred node yet", "shard", s.shard, "node", m.addressOf(s.to), "error", err)
			continue // the next one may be able to
		}
		home[s.shard] = now // the preferred node may be unable to serve the shard, and give it away before the next check
		m.log.Info("a shard is back at its preferred node, which was restarted", "shard", s.shard, "node", m.addressOf(s.to))
		return
	}
}

// homecoming is a shard that is to go back to its preferred node.
type homecoming struct {
	shard uint32
	to    wlog.NodeID
}

// homes are the times at which shards were last seen at their preferred nodes.
type homes map[uint32]hook.Instant

// see notes which shards are at their preferred nodes.
func (h homes) see(now hook.Instant, shards []quorum.ReplicaStatus) {
	for i := range shards {
		if s := &shards[i]; s.Owner != 0 && s.Owner == quorum.Preferred(s.Shard, s.Voters) {
			h[s.Shard] = now
		}
	}
}

// displaced returns the shards that this node owns although another node is preferred, if that node has come back lately, has not owned the
// shard since, and lacks no entry.
func (h homes) displaced(now hook.Instant, shards []quorum.ReplicaStatus, links []peer.Status) (all []homecoming) {
	for i := range shards {
		s := &shards[i]
		to := quorum.Preferred(s.Shard, s.Voters)
		if s.Role != quorum.Owner || to == s.Owner {
			continue
		}
		l := slices.IndexFunc(links, func(l peer.Status) bool { return l.Node.ID == to && l.Connected })
		p := slices.IndexFunc(s.Peers, func(p quorum.PeerStatus) bool { return p.Node == to && p.Active && !p.Learner && p.Lag == 0 })
		if l < 0 || p < 0 {
			continue
		}
		if h[s.Shard] >= links[l].Since { // the preferred node had the shard since it came back, and gave it away
			continue
		}
		if back := now.Sub(links[l].Since); back >= homeSettled && back <= homeWithin {
			all = append(all, homecoming{s.Shard, to})
		}
	}
	return all
}

// movesFreely reports whether no client would notice that another node takes over a shard.
func movesFreely(st *store.Store, shard uint32) bool {
	if shard == 0 { // the registry, which has no clients
		return true
	}
	placements, _ := st.Registry().Placements(shard)
	for _, p := range placements {
		if v, here := st.VHost(p.VHost); !here || !v.MovesFreely() {
			return false
		}
	}
	return true
}
