package app

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
// back if nobody notices. An operator who transfers a shard is not overruled: it stays where it is until its node is started again.
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
	for {
		select {
		case <-ticker.C:
			m.handBack(ctx, st, now())
		case <-ctx.Done():
			return
		}
	}
}

// handBack hands one shard back, if there is one.
func (m *member) handBack(ctx context.Context, st *store.Store, now hook.Instant) {
	for _, s := range displaced(now, m.Engine().Status(), m.Status().Links) {
		if !movesFreely(st, s.shard) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, homePatience)
		err := m.Engine().Transfer(ctx, s.shard, s.to)
		cancel()
		if err != nil {
			m.log.Debug("a shard does not go back to the node that it is meant for yet", "shard", s.shard, "node", m.addressOf(s.to), "error", err)
			return
		}
		m.log.Info("a shard is back at the node that it is meant for, which was started again", "shard", s.shard, "node", m.addressOf(s.to))
		return
	}
}

// homecoming is a shard that is to go back to a node.
type homecoming struct {
	shard uint32
	to    wlog.NodeID
}

// displaced returns the shards that this node owns and that are meant for others which have not been back for long, and lack nothing.
func displaced(now hook.Instant, shards []quorum.ReplicaStatus, links []peer.Status) (all []homecoming) {
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
