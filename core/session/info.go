package session

import (
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// What others than the connection's own goroutines may look at. A connection shows itself once it is open.

// ConnInfo are what never changes of an open connection. They are read only.
type ConnInfo struct {
	ID          uint64 // unique in this process
	Peer        Peer
	User, VHost string
	Mechanism   string     // the client logged in with
	Properties  amqp.Table // the client's own
	ClientName  string     // what the client calls itself, if it does
	ChannelMax  int
	FrameMax    int
	Heartbeat   uint16 // seconds; 0 = none
	Opened      hook.Instant
}

// Name is RabbitMQ's name for the connection.
func (f *ConnInfo) Name() string { return f.Peer.name() }

func (p *Peer) name() string { return p.Address + " -> " + p.Local }

func (c *Conn) publishInfo() {
	c.info.Store(&ConnInfo{
		ID: c.id, Peer: c.peer, User: c.user.Name, VHost: c.vhost.Name(), Mechanism: c.mechanism, Properties: c.properties,
		ClientName: c.name, ChannelMax: c.channelMax, FrameMax: c.frameMax, Heartbeat: c.heartbeat, Opened: c.now,
	})
	c.properties = nil
}

// Info returns what never changes of the connection; nil as long as it is not open. Any goroutine may ask.
func (c *Conn) Info() *ConnInfo { return c.info.Load() }

// IsOpen says whether the connection is open: not in the handshake, and not closed by either side. Any goroutine may ask.
func (c *Conn) IsOpen() bool { return c.Info() != nil && !c.ended.Load() }

// Status is what changes of an open connection.
type Status struct {
	Channels int
	Blocked  bool // it is not read from, because of an alarm
	Closing  bool // connection.close was sent or received
	Pending  int  // bytes that wait to be written
}

// Status may be asked by any goroutine.
func (c *Conn) Status() Status {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	s := Status{Blocked: c.blocked, Closing: c.out.sealed || c.out.closed, Pending: c.out.size()}
	for _, ch := range c.channels {
		if ch != nil {
			s.Channels++
		}
	}
	return s
}

// ChannelInfo is what there is to know of a channel.
type ChannelInfo struct {
	Number         uint16
	Confirms       bool
	Transactional  bool
	Prefetch       uint32 // of each consumer to come; 0 = none
	GlobalPrefetch uint32 // of the whole channel; 0 = none
	Unacked        int
	Unconfirmed    int
	Consumers      int
	Counters
}

// Channels lists the channels by number. Any goroutine may ask.
func (c *Conn) Channels() []ChannelInfo {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	var all []ChannelInfo
	for _, ch := range c.channels {
		if ch != nil && !ch.closed {
			all = append(all, ch.info())
		}
	}
	return all
}

// info describes the channel. The caller holds out's lock.
func (ch *channel) info() ChannelInfo {
	_, unconfirmed := ch.confirms.answeredCount()
	return ChannelInfo{
		Number: ch.id, Confirms: ch.mode == confirming, Transactional: ch.mode == transactional,
		Prefetch: ch.prefetch, GlobalPrefetch: ch.globalPrefetch,
		Unacked: ch.unacked.count(), Unconfirmed: unconfirmed, Consumers: len(ch.consumers), Counters: ch.counted(),
	}
}

func (ch *channel) setMode(m mode) {
	ch.conn.out.mu.Lock()
	defer ch.conn.out.mu.Unlock()
	ch.mode = m
}

// Counters sums up what the open channels have counted.
func (c *Conn) Counters() (t Counters) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	for _, ch := range c.channels {
		if ch != nil && !ch.closed {
			own := ch.counted()
			t.Add(&own)
		}
	}
	return t
}

// ConsumerInfo describes a consumer. It is read only.
type ConsumerInfo struct {
	*queue.Consumer
	Channel   uint16
	Conn      *ConnInfo
	Arguments amqp.Table
}

// ConsumerOf describes what is behind the consumer of a queue; ok is false if that is not a client's.
func ConsumerOf(c *queue.Consumer) (info ConsumerInfo, ok bool) {
	s, ok := c.Sink.(*consumer)
	if !ok {
		return ConsumerInfo{}, false
	}
	return s.info(), true
}

func (s *consumer) info() ConsumerInfo {
	return ConsumerInfo{Consumer: &s.Consumer, Channel: s.channel.id, Conn: s.channel.conn.Info(), Arguments: s.arguments}
}

// Consumers lists the consumers of a channel by tag. Any goroutine may ask.
func (c *Conn) Consumers(channel uint16) []ConsumerInfo {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if int(channel) >= len(c.channels) || c.channels[channel] == nil {
		return nil
	}
	var all []ConsumerInfo
	for _, s := range c.channels[channel].consumers {
		all = append(all, s.info())
	}
	slices.SortFunc(all, func(a, b ConsumerInfo) int { return strings.Compare(a.Tag, b.Tag) })
	return all
}
