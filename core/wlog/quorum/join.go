package quorum

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

// Join gives nodes a vote in a shard that this node owns, in addition to the present
// voters; the node that founded the log is the first one. The new nodes first get the log,
// and then all get a vote in one step. Adding one vote at a time would leave a shard with
// two voters, of which neither may fail. After an interruption Join may be called again,
// like [Engine.Replace].
func (e *Engine) Join(ctx context.Context, shard uint32, nodes ...wlog.NodeID) error {
	j := &joining{}
	for _, n := range nodes {
		if n == 0 || slices.Contains(j.nodes, uint64(n)) {
			return fmt.Errorf("nodes %v join: their numbers must differ and begin with 1", nodes)
		}
		j.nodes = append(j.nodes, uint64(n))
	}
	return e.move(ctx, "join", shard, j.step)
}

// joining makes nodes voters of a shard.
type joining struct {
	reconfiguration
	nodes []uint64
}

func (j *joining) step(g *group, tick bool) (done bool, err error) {
	if g.owner == 0 {
		return false, g.notOwner()
	}
	j.wait(tick)
	c := g.disk.configurationAt(g.applied)
	strangers := without(j.nodes, c.GetVoters())
	switch {
	case len(c.GetVotersOutgoing()) > 0: // Raft ends that by itself
		return false, nil
	case len(strangers) == 0:
		return j.sealed(g, j.nodes...), nil
	case j.pause > 0:
		return false, nil
	}
	if unknown := without(strangers, c.GetLearners()); len(unknown) > 0 {
		j.change(g, single(raftpb.ConfChangeType_ConfChangeAddLearnerNode, unknown[0])) // one by one, so that no joint configuration is needed
		return false, nil
	}
	for _, p := range g.peers() {
		if slices.Contains(strangers, p.id) && !p.caughtUp {
			return false, nil
		}
	}
	j.change(g, promotion(c.GetLearners(), strangers...)...)
	return false, nil
}

// without returns the numbers that are not among others.
func without(numbers, others []uint64) (rest []uint64) {
	for _, n := range numbers {
		if !slices.Contains(others, n) {
			rest = append(rest, n)
		}
	}
	return rest
}
