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

// After a rolling restart one node may own most shards. Each shard is meant for one node; when that was started again, it gets the shard
// back if nobody notices. That node may give it away again: an operator transfers it, or its disk is slow. Then the shard stays where it is
// until the node is started again, or it would go to and fro.
const (
	homePause    = 2 * time.Second  // between two looks
	homeSettled  = 5 * time.Second  // for so long a node has been back before it gets a shard
	homeWithin   = 15 * time.Minute // and for so long at most
	homePatience = 10 * time.Second
)

// keepSpread hands shards that this node owns back to the nodes that they are meant for, until ctx ends.
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

// handBack hands one shard back, if there is one.
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
			m.log.Debug("a shard does not go back to the node that it is meant for yet", "shard", s.shard, "node", m.addressOf(s.to), "error", err)
			continue // the next one may be able to
		}
		home[s.shard] = now // that node may not be able to serve it, and give it away before the next look
		m.log.Info("a shard is back at the node that it is meant for, which was started again", "shard", s.shard, "node", m.addressOf(s.to))
		return
	}
}

// homecoming is a shard that is to go back to a node.
type homecoming struct {
	shard uint32
	to    wlog.NodeID
}

// homes are when shards were last seen at the nodes that they are meant for.
type homes map[uint32]hook.Instant

// see notes which shards are at the nodes that they are meant for.
func (h homes) see(now hook.Instant, shards []quorum.ReplicaStatus) {
	for i := range shards {
		if s := &shards[i]; s.Owner != 0 && s.Owner == quorum.Preferred(s.Shard, s.Voters) {
			h[s.Shard] = now
		}
	}
}

// displaced returns the shards that this node owns and that are meant for others which have not been back for long, have not had them since,
// and lack nothing.
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
		if h[s.Shard] >= links[l].Since { // that node gave it away
			continue
		}
		if back := now.Sub(links[l].Since); back >= homeSettled && back <= homeWithin {
			all = append(all, homecoming{s.Shard, to})
		}
	}
	return all
}

// movesFreely reports whether nobody would notice that another node owns a shard.
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
