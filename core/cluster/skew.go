package cluster

import (
	"context"
	"time"

	"github.com/curfewmq/curfew/core/peer"
)

// skewed hears that the node's clock went wrong or right.
func (n *Node) skewed(s peer.Skew) {
	if n.options.Skewed != nil {
		n.options.Skewed(s)
	}
	for {
		select {
		case n.skew <- s.Level:
			return
		default:
		}
		select {
		case <-n.skew: // the former one
		default:
		}
	}
}

// keepClock keeps the node from owning shards while its clock differs too much from those of the others: what a deadline means would
// change with the owner.
func (n *Node) keepClock() {
	stop := func() {}
	defer func() { stop() }()
	for {
		select {
		case level := <-n.skew:
			stop()
			stop = n.bar(level == peer.Barred)
		case <-n.ctx.Done():
			return
		}
	}
}

// bar has the node give its shards to others, and own none; or lets it own some again. stop ends the former, which may take long if no
// other node is there.
func (n *Node) bar(barred bool) (stop func()) {
	if !barred {
		if !n.leaving.Load() {
			n.Engine().Stay()
		}
		return func() {}
	}
	ctx, cancel := context.WithCancel(n.ctx)
	done := make(chan struct{})
	n.duties.Go(func() {
		defer close(done)
		n.giveAll(ctx)
	})
	return func() {
		cancel()
		<-done
	}
}

// declinedPause is how long a node whose clock is wrong waits until it asks the others again to take its shards.
const declinedPause = time.Second

// giveAll gives the node's shards to others. It tries until ctx ends: those that decline them now may take them later.
func (n *Node) giveAll(ctx context.Context) {
	for said := false; ; said = true {
		err := n.Engine().Leave(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !said {
			n.options.Log.Error("this node still owns shards, although its clock is wrong", "error", err)
		}
		select {
		case <-time.After(declinedPause):
		case <-ctx.Done():
			return
		}
	}
}
