package report

import (
	"time"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/wire"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Queue is a queue as it is.
type Queue struct {
	QueueConfig
	Seen bool // it was looked at, and the fields below count
	Gone bool // it was deleted before that

	queue.Stats
	Now             hook.Instant // the queue's time
	Head            queue.Head   // zero without messages
	Stopped         bool
	ExclusiveTag    string // of the exclusive consumer; "" = there is none
	SingleActiveTag string // of the single active consumer; "" = there is none
	Owner           *Peer  // of an exclusive queue; nil = unknown
	Rates           Rates
}

// QueueConfig is what is known of a queue without looking at it.
type QueueConfig struct {
	Name, VHost, Node              string
	Kind, Strategy                 string
	Durable, AutoDelete, Exclusive bool
	Args                           Args
	Policy, OperatorPolicy         string // "" = none applies
	Definition                     Definition
	DeliveryLease                  time.Duration // 0 = none
}

// Rates are how many times per second something is counted, in the order of the counts that they are of.
type Rates struct {
	PerSecond []float64
	Known     bool // they say how it is now; otherwise they are zero, or an old average
}

// Peer is the client of a connection.
type Peer struct{ Name, Address string }

// Connection is a client's connection.
type Connection struct {
	Peer
	Local, Node, VHost, User string
	ClientName, Mechanism    string
	Properties               Table
	ChannelMax, FrameMax     int
	Heartbeat                uint16
	Opened                   hook.Instant
	TLS                      *TLS // nil = it is not encrypted
	session.Status
	wire.Traffic
	Rates Rates
}

// TLS is how a connection is encrypted.
type TLS struct {
	Version, Suite uint16
	Certificate    *Certificate // of the client; nil = it has shown none
}

// Certificate is a client's certificate.
type Certificate struct {
	Subject, Issuer string
	From, Until     time.Time
}

// Channel is a channel of a connection.
type Channel struct {
	Connection        Peer
	Node, VHost, User string
	session.ChannelInfo
	Rates Rates
}

// Consumer is a consumer of a queue.
type Consumer struct {
	Connection       Peer
	Channel          uint16
	Node, User       string
	Queue, VHost     string
	Tag              string
	NoAck, Exclusive bool
	Prefetch         uint32
	DeliveryLease    time.Duration // 0 = none
	Arguments        Table
	SingleActive     bool // the queue has one active consumer at a time
	Active           bool
}
