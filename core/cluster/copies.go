package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/quorum"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// errLearner is the error for a copy that may lack anything: see [quorum.ErrNoVote].
var errLearner = errors.New("this node has no vote in it yet, because it has not received all of it")

// Copies describes this node's copies of the shards, once each of them has all that was durable in the cluster when Copies was called.
// It waits for owners that are being elected until ctx ends.
func (n *Node) Copies(ctx context.Context) (*replicas.Copy, error) {
	engine, shards := n.Engine(), n.options.Shards+1
	reached := make(chan error, shards)
	for shard := range shards {
		go func() {
			_, err := engine.Barrier(ctx, shard) // it returns when this node has applied what it asks for, and so has it on its disk
			for errors.Is(err, wlog.ErrNoOwner) && ctx.Err() == nil {
				_, err = engine.Barrier(ctx, shard) // which has waited for an owner
			}
			if err != nil {
				err = fmt.Errorf("shard %d: this node has not got what the cluster has confirmed: %w", shard, err)
			}
			reached <- err
		}()
	}
	var why error
	for range shards {
		why = cmp.Or(why, <-reached)
	}
	for _, r := range engine.Status() {
		if r.Role == quorum.Learner {
			why = cmp.Or(why, fmt.Errorf("shard %d: %w", r.Shard, errLearner))
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return &replicas.Copy{Node: n.id.Number, Address: n.id.Address, Shards: n.options.Shards, Format: n.id.writes()}, why
}

// OpenCopies opens copies of shards in a folder that has nothing else.
func OpenCopies(folder vfs.FS, about replicas.Copy) (*Copy, error) {
	if err := CheckCopy(about); err != nil {
		return nil, err
	}
	reader, err := seg.NewReader(folder)
	if err != nil {
		return nil, err
	}
	return &Copy{reader: reader, id: identity{Number: about.Node, Address: about.Address, Shards: about.Shards, Writes: about.Format}}, nil
}

// CheckCopy returns an error if this version cannot restore such copies.
func CheckCopy(about replicas.Copy) error {
	switch {
	case about.Node == 0:
		return errors.New("the node has no number")
	case about.Shards < 1 || about.Shards > 255:
		return fmt.Errorf("%d shards: a cluster has 1 to 255", about.Shards)
	case about.Format > Format:
		return fmt.Errorf("%w: format %d of logs, this version reads %d to %d", wlog.ErrNewer, about.Format, FirstFormat, Format)
	}
	return nil
}
