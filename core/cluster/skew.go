package cluster

import (
	"context"
	"time"

	"github.com/curfewmq/curfew/core/peer"
)

// skewed passes on that the node's clock went wrong or right. A newer level replaces one that keepClock has not read.
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
		case <-n.skew: // drop the older level
		default:
		}
	}
}

// keepClock keeps the node from owning shards while its clock differs too much from the other nodes' clocks: the meaning of deadlines would
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

// bar makes the node transfer its shards and own none, or lets it own shards again. stop ends the transfers, which take long if no other
// node is there.
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

// declinedPause is how long a node with a wrong clock waits before it asks the others again to take its shards.
const declinedPause = time.Second

// giveAll transfers the node's shards to others. It tries until ctx ends, because nodes that decline now may accept later.
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
