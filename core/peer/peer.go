// Package peer provides the links between the nodes of a cluster.
//
// A node dials each of the others, and its [Hello] says what the stream is for. [Small] and [Bulk] carry messages from the dialling node,
// which are never sent again. All other streams are handed over as connections. Both sides check the other's Hello, and a refusal names
// the difference. Messages wait in queues of limited size: a message that does not fit, or has no stream, is dropped.
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

// Kind is the purpose of a stream between two nodes.
type Kind uint8

// The kinds of streams.
const (
	Greeting Kind = iota // the nodes only exchange their Hello
	Small                // messages that must not wait for large ones, and clock comparisons
	Bulk                 // all other messages
	Relay                // a client's connection, forwarded to the node that serves its vhost
	HTTP                 // a request to the management API, for another node
	kinds
)

// String returns the name used in logs.
func (k Kind) String() string {
	if k < kinds {
		return [...]string{"greeting", "small", "bulk", "relay", "http"}[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Node is a node of a cluster, with the address at which the others reach it.
type Node struct {
	ID      wlog.NodeID `json:"number"`
	Address string      `json:"address"`
}

// ShardTime is the time of a shard, according to its owner.
type ShardTime struct {
	Shard uint32
	At    hook.Instant
}

// Options of [Links]. Functions must not block unless they say so, and are called from many goroutines.
type Options struct {
	// Self returns the node's Hello. Kind, Protocol and Clock need not be set.
	Self func() Hello
	// Check returns why to refuse a stream from or to the node of a Hello; nil = accept it. The error is reported to both nodes.
	Check func(Hello) error
	// Listener accepts connections of other nodes. Links closes it.
	Listener net.Listener
	// Dial connects to an address; nil = over TCP. It may block until ctx ends.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// TLS has the certificates; nil = nodes speak without TLS.
	TLS *TLS
	// Clock is the node's clock, which is sent to other nodes.
	Clock clock.Clock
	// Log is the log for operators.
	Log *slog.Logger

	// Received takes a message of another node, and owns it. It may block briefly, which delays the messages after it.
	Received func(from wlog.NodeID, shard uint32, message []byte)
	// Gone is called when the process of a node has apparently ended: a connection to the node ended, and the node refuses new ones.
	// nil = it is not called.
	Gone func(wlog.NodeID)
	// Silent is called when nothing has come from a node for ten seconds: it is cut off, suspended, or has ended. nil = it is not called.
	Silent func(wlog.NodeID)
	// Times returns, each second, the times of the shards that the node owns; nil = it never owns any.
	Times func() []ShardTime
	// Short returns, each second, the shards whose logs lack space on the node's disk; nil = none ever does.
	Short func() []uint32
	// Heard receives, each second, the times of the shards that another node owns, and the shards for which its disk lacks space. nil =
	// it is not called.
	Heard func(from wlog.NodeID, times []ShardTime, short []uint32)
	// Skewed is called when the difference between the node's clock and the others' becomes
	// too large, or acceptable again; nil = it is not called.
	Skewed func(Skew)

	// MaxMessage is the maximum size of a message, in bytes; 0 = 72 MiB.
	MaxMessage int
	// Queue is how many bytes may wait for a node, or be on the way, on each of its
	// streams; 0 = 64 MiB. A larger message may wait only by itself.
	Queue int
}

const (
	defaultMaxMessage = 72 << 20
	defaultQueue      = 64 << 20
	maxSmall          = 1 << 20 // bytes of a message on a Small stream
)

// Time limits of links.
const (
	handshakeTimeout = 5 * time.Second
	pingInterval     = time.Second
	bulkPingInterval = 3 * time.Second        // on a Bulk stream, whose pings only show that the node is alive
	silence          = 5 * time.Second        // without an answer to a ping, after which the sender gives up the stream
	idle             = 10 * time.Second       // without a ping, or within a message, after which the receiver gives up the stream
	secondLook       = 100 * time.Millisecond // at the end of silence and idle, for bytes that arrived while this process was suspended
	writeTimeout     = 10 * time.Second       // for chunkSize bytes
	firstBackOff     = 50 * time.Millisecond
	lastBackOff      = 2 * time.Second
	steady           = 2 * time.Second // how long a stream must have lasted to be dialled again at once when it ends
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
