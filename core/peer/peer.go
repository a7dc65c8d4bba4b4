// Package peer is the links between the nodes of a cluster.
//
// A node dials each of the others, and says in a [Hello] what the stream is for: [Small] and [Bulk] carry messages from the node that
// dialled, which are never sent again, and everything else is handed over as a connection. Both sides check the other's Hello, and
// refuse what differs by name. Messages wait in queues of limited size: what does not fit, or has nowhere to go, is dropped.
package peer

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Kind says what a stream between two nodes is for.
type Kind uint8

// The kinds of streams.
const (
	Greeting Kind = iota // the nodes only say hello
	Small                // messages that must not wait for large ones, and the nodes' clocks
	Bulk                 // all other messages
	Relay                // a client's connection, to the node that serves its vhost
	HTTP                 // a request to the management API, for another node
	kinds
)

// String returns the name that logs have.
func (k Kind) String() string {
	if k < kinds {
		return [...]string{"greeting", "small", "bulk", "relay", "http"}[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Node is a node of a cluster, and where the others reach it.
type Node struct {
	ID      wlog.NodeID `json:"number"`
	Address string      `json:"address"`
}

// ShardTime is the time of a shard, by its owner.
type ShardTime struct {
	Shard uint32
	At    hook.Instant
}

// Options of [Links]. Functions must not block unless they say so, and are called from many goroutines.
type Options struct {
	// Self returns what the node says of itself. Kind, Protocol and Clock need not be set.
	Self func() Hello
	// Check returns why a stream from or to the node that said hello is refused; nil = it is not. The error is reported to both nodes.
	Check func(Hello) error
	// Listener is where other nodes come in. Links closes it.
	Listener net.Listener
	// Dial connects to an address; nil = by TCP. It may block until ctx ends.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// TLS has the certificates; nil = nodes speak without TLS.
	TLS *TLS
	// Clock is the node's clock, which other nodes are told.
	Clock clock.Clock
	// Log gets what operators should know.
	Log *slog.Logger

	// Received takes a message of another node, and owns it. It may block shortly: messages behind it wait.
	Received func(from wlog.NodeID, shard uint32, message []byte)
	// Gone hears that the process of a node has ended, as far as one can know: a connection to it ended, and it refuses new ones.
	// nil = nobody wants to know.
	Gone func(wlog.NodeID)
	// Silent hears that nothing has come from a node for ten seconds: it is cut off, stands still, or has ended. nil = nobody wants to know.
	Silent func(wlog.NodeID)
	// Times returns the times of the shards that the node owns, each second; nil = it never owns any.
	Times func() []ShardTime
	// Short returns the shards for whose logs the node's disk lacks space, each second; nil = it never does.
	Short func() []uint32
	// Heard takes what another node says each second: the times of the shards that it owns, and those that its disk lacks space for. nil =
	// nobody wants to know.
	Heard func(from wlog.NodeID, times []ShardTime, short []uint32)
	// Skewed hears that the node's clock went wrong or right, compared with those of the others; nil = nobody wants to know.
	Skewed func(Skew)

	// MaxMessage is how large a message may be, in bytes; 0 = 72 MiB.
	MaxMessage int
	// Queue is how many bytes may wait for a node, on either of its streams, or be on the way; 0 = 64 MiB. A message that is larger
	// than that may wait alone.
	Queue int
}

const (
	defaultMaxMessage = 72 << 20
	defaultQueue      = 64 << 20
	maxSmall          = 1 << 20 // bytes of a message on a Small stream
)

// Times that links take.
const (
	handshakeTimeout = 5 * time.Second
	pingInterval     = time.Second
	bulkPingInterval = 3 * time.Second        // on a Bulk stream, whose pings only show that it is there
	silence          = 5 * time.Second        // without an answer to a ping, until the one that asks gives the stream up
	idle             = 10 * time.Second       // without a ping, or in a message, until the one that listens gives it up
	secondLook       = 100 * time.Millisecond // at the end of silence and idle, for what has come while this process stood still
	writeTimeout     = 10 * time.Second       // for chunkSize bytes
	firstBackOff     = 50 * time.Millisecond
	lastBackOff      = 2 * time.Second
	steady           = 2 * time.Second // that a stream has to last, to be dialled again at once when it ends
)

func (o *Options) setDefaults() {
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext(ctx, "tcp", address)
		}
	}
	if o.Gone == nil {
		o.Gone = func(wlog.NodeID) {}
	}
	if o.Silent == nil {
		o.Silent = func(wlog.NodeID) {}
	}
	if o.Times == nil {
		o.Times = func() []ShardTime { return nil }
	}
	if o.Short == nil {
		o.Short = func() []uint32 { return nil }
	}
	if o.Heard == nil {
		o.Heard = func(wlog.NodeID, []ShardTime, []uint32) {}
	}
	if o.Skewed == nil {
		o.Skewed = func(Skew) {}
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = defaultMaxMessage
	}
	if o.Queue == 0 {
		o.Queue = defaultQueue
	}
}
