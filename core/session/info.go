package session

import (
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// The methods in this file may be called from any goroutine.

// ConnInfo describes an open connection: the facts that never change. It is read only.
type ConnInfo struct {
	ID          uint64 // unique in this process
	Peer        Peer
	User, VHost string
	Mechanism   string     // of the login
	Properties  amqp.Table // of the client
	ClientName  string     // connection_name of the client; "" if it gave none
	ChannelMax  int
	FrameMax    int
	Heartbeat   uint16 // seconds; 0 means none
	Opened      hook.Instant
	Front       wlog.NodeID // the node that relays the connection; 0 means that the client is connected to this node
}

// Name returns RabbitMQ's name for the connection.
func (i *ConnInfo) Name() string { return i.Peer.name() }

func (p *Peer) name() string { return p.Address + " -> " + p.Local }

func (c *Conn) publishInfo() {
	c.info.Store(&ConnInfo{
		ID: c.id, Peer: c.peer, User: c.user.Name, VHost: c.vhost.Name(), Mechanism: c.mechanism, Properties: c.properties,
		ClientName: c.name, ChannelMax: c.channelMax, FrameMax: c.frameMax, Heartbeat: c.heartbeat, Opened: c.round.instant(),
		Front: c.front,
	})
	c.properties = nil
}

// Info returns the facts that never change about the connection; nil before it is open.
func (c *Conn) Info() *ConnInfo { return c.info.Load() }

// IsOpen reports whether the connection is past its handshake and closed by neither side.
func (c *Conn) IsOpen() bool { return c.Info() != nil && !c.ended.Load() }

// Status describes an open connection: the facts that change.
type Status struct {
	Channels int
	Blocked  bool // its input is not read, because of an alarm
	Closing  bool // connection.close was sent or received
	Pending  int  // bytes to be written
}

// Status returns the connection's present status.
func (c *Conn) Status() Status {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return Status{Channels: c.channels.count(), Blocked: c.blocked, Closing: c.out.sealed || c.out.closed, Pending: c.out.size()}
}

// ChannelInfo describes a channel.
type ChannelInfo struct {
	Number         uint16
	Confirms       bool
	Transactional  bool
	Prefetch       uint32 // of each consumer added later; 0 means none
	GlobalPrefetch uint32 // 0 means none
	Unacked        int
	Unconfirmed    int
	Consumers      int
	Counters
}

// Channels lists the open channels by number.
func (c *Conn) Channels() []ChannelInfo {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.channels.infos()
}

// info describes the channel. The caller holds out's lock.
func (ch *channel) info() ChannelInfo {
	p, d := &ch.publisher, &ch.deliveries
	each, limit := d.credit.limits()
	return ChannelInfo{
		Number: ch.outlet.id, Confirms: p.confirms.isOn(), Transactional: ch.tx.isOn(),
		Prefetch: each, GlobalPrefetch: limit, Unacked: d.unsettled.count(),
		Unconfirmed: p.confirms.unconfirmed(), Consumers: d.consumers.count(), Counters: ch.allCounters(),
	}
}

// HasUnsettled reports whether the client has unsettled deliveries.
func (c *Conn) HasUnsettled() bool {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.channels.hasUnsettled()
}

// Counters returns the sum over the open channels.
func (c *Conn) Counters() Counters {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.channels.counters()
}

// ConsumerInfo describes a consumer. It is read only.
type ConsumerInfo struct {
	*queue.Consumer
	Channel   uint16
	Conn      *ConnInfo
	Arguments amqp.Table
	// DeliveryLease is how long the consumer may keep its next deliveries unsettled; 0 means any time.
	DeliveryLease time.Duration
}

// ConsumerOf describes the consumer of a queue; ok is false if it is not a client's.
func ConsumerOf(c *queue.Consumer) (info ConsumerInfo, ok bool) {
	cs, ok := c.Sink.(*consumer)
	if !ok {
		return ConsumerInfo{}, false
	}
	return cs.info(), true
}

func (cs *consumer) info() ConsumerInfo {
	return ConsumerInfo{Consumer: &cs.Consumer, Channel: cs.channel.out.id, Conn: cs.channel.conn, Arguments: cs.arguments, DeliveryLease: cs.leaseOf()}
}

// Consumers lists the consumers of a channel by tag.
func (c *Conn) Consumers(channel uint16) []ConsumerInfo {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	all := c.channels.all()
	if int(channel) >= len(all) || all[channel] == nil {
		return nil
	}
	return all[channel].deliveries.consumers.infos()
}

// DeliveryInfo is a delivery of a queue that awaits settlement.
type DeliveryInfo struct {
	queue.PendingAck
	Channel uint16
	Tag     uint64
}

// Deliveries lists the deliveries of a queue that the connection's channels have not settled, by channel and tag.
func (c *Conn) Deliveries(m *queue.Mailbox) (all []DeliveryInfo) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	for _, ch := range c.channels.all() {
		if ch == nil || ch.outlet.closed {
			continue
		}
		for t := range ch.deliveries.unsettled.all() {
			if t.Consumer.Queue == m {
				all = append(all, DeliveryInfo{t.PendingAck, ch.outlet.id, t.tag})
			}
		}
	}
	return all
}
