package power

import (
	"context"
	"log/slog"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/plugins/deadletter"
	"github.com/curfewmq/curfew/plugins/delay"
	"github.com/curfewmq/curfew/plugins/expires"
	"github.com/curfewmq/curfew/plugins/maxlength"
	"github.com/curfewmq/curfew/plugins/ttl"
	"github.com/curfewmq/curfew/sdk/hook"
)

// settings are what brokers of one run have in common.
type settings struct {
	durability seg.Durability
	shards     int
	liar       bool // the disk forgets what of the messages it was told to keep
	bury       bool // queues that expire dead-letter what they have: plugins.expires.dead-letter
}

// broker is one life of the broker: all of it but sockets.
type broker struct {
	disk    *disk
	clock   clock.Clock
	store   *store.Store
	server  *session.Server
	vhost   *vhost.VHost
	clients []*client
	over    bool          // its power is gone, or it was killed
	opened  chan struct{} // closed when the store has opened, or has not
	failure error         // why it has not
}

// Segments are as small as they come, so that logs are trimmed, and what is live in them moved, many times in a life.
const (
	segmentSize = 16 << 10
	extentSize  = 8 << 10
)

// start begins to open a broker on a disk. The wall clock is off by so much.
func start(d *disk, s settings, off time.Duration, log *slog.Logger) *broker {
	running := clock.New()
	b := &broker{disk: d, opened: make(chan struct{}), clock: func() hook.Instant { return running().Add(off) }}
	c, err := chain.New([]chain.Named{
		{Name: "ttl", Plugin: plugin(ttl.Factory, nil)},
		{Name: "maxlength", Plugin: plugin(maxlength.Factory, nil)},
		{Name: "deadletter", Plugin: plugin(deadletter.Factory, nil)},
		{Name: "expires", Plugin: plugin(expires.Factory, func(c any) { c.(*expires.Config).DeadLetter = s.bury })},
		{Name: "delay", Plugin: plugin(delay.Factory, nil)},
	}, chain.Options{})
	if err != nil {
		panic(err)
	}
	go func() {
		defer close(b.opened)
		b.store, b.failure = store.Open(context.Background(), store.Options{
			Dir: d, Durability: s.durability, SegmentSize: segmentSize, Extent: extentSize, Shards: s.shards,
			Chain: c, Clock: b.clock, Log: log, Hashing: auth.SHA512,
		})
	}()
	return b
}

func plugin(f hook.Factory, change func(any)) hook.Plugin {
	p, _, err := f.New(func(into any) error {
		if change != nil {
			change(into)
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	return p
}

// serve has the broker, which is open, take connections.
func (b *broker) serve(log *slog.Logger) {
	b.vhost, _ = b.store.VHost(store.DefaultVHost)
	b.server = session.NewServer(session.Options{
		Product: "Curfew", Version: "1.0.0", ClusterName: "test", Users: b.store.Users(), VHosts: b.store.VHost,
		ChannelMax: 2047, FrameMax: 131072, MessageMax: 16 << 20, Log: log,
	})
}

// abandon ends a broker whose disk is gone.
func (b *broker) abandon() {
	b.over = true
	b.disk.release()
	<-b.opened
	if b.failure != nil {
		return
	}
	now := b.clock()
	for _, c := range b.clients {
		c.await()
		c.leave(now)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = b.store.Close(ctx) // its disk is gone
}

// await returns when nobody feeds the session.
func (c *client) await() {
	for !c.calm() {
		time.Sleep(time.Millisecond)
	}
}

// calm reports that nobody feeds the session.
func (c *client) calm() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.busy
}
