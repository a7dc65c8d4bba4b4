// Package replicas describes a cluster as one of its nodes knows it: values without
// behaviour. Package cluster fills them in; the management API and the metrics show them.
package replicas

import (
	"net/netip"
	"time"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// View is a node's knowledge of its cluster at one moment. It belongs to the caller.
type View struct {
	Cluster string      // identifier of the cluster
	Self    wlog.NodeID // the node whose view it is
	Nodes   []Node      // all members, the node itself among them, by address
	Shards  []Shard     // that the node keeps a replica of, by number
	// Applicants are nodes that want the seats of the members at their addresses. They have
	// no vote, and no data yet.
	Applicants []Node
	Relayed    Relayed
	Format     uint32 // of the logs that the cluster writes; 0 = it is no cluster
}

// Node is a member of the cluster.
type Node struct {
	ID      wlog.NodeID
	Name    string // "curfew@a:5680"
	Address string // at which the other nodes reach it
	Version string // of its program; "" = unknown
	Format  uint32 // the latest format of logs that it reads; 0 = unknown
	Up      bool   // this node has a link to it now; always true for itself
	Since   hook.Instant
	Link    Link // to it; zero for the node itself
}

// Link is a node's knowledge of its link to another node.
type Link struct {
	Local, Remote  netip.AddrPort // of the connection that this node has dialled; zero = there is none
	Sent, Received uint64         // bytes, since the node was started
	Queued         int64          // bytes that wait to be sent
	Dropped        uint64         // messages that were not sent, because too many waited or there was no link
	RoundTrip      time.Duration  // of the last ping; 0 = unknown
	Offset         time.Duration  // the other node's clock minus this node's; valid if Measured
	Measured       bool           // Offset is known
	Err            string         // why there is no link; "" = there is one, or it was not tried
}

// Role is the part that a replica plays in its shard.
type Role string

// The roles.
const (
	Owner     Role = "owner"
	Follower  Role = "follower"
	Candidate Role = "candidate" // wants to be the owner, and asks the others
	Learner   Role = "learner"   // gets the log, and does not count for a majority yet
	Stopped   Role = "stopped"   // it does not run: its log has failed, or it is not started yet
)

// Shard is a node's replica of a shard.
type Shard struct {
	Shard     uint32
	Role      Role
	Owner     wlog.NodeID   // as far as the node knows; 0 = none
	Preferred wlog.NodeID   // the node that should own the shard, so that shards are spread over the nodes
	Term      uint64        // rises with each owner
	Voters    []wlog.NodeID // that decide about the shard, in order. There may be four while a node is being replaced
	Commit    wlog.Index    // the last entry that is known to be on a majority of the nodes
	Applied   wlog.Index    // the last entry that the node has acted on
	Last      wlog.Index    // the last entry in the node's log
	Bytes     int64         // on the node's disk
	Elections uint64        // owners that the node has seen since it was started
	Err       string        // why the replica does not run; "" = it does
	Peers     []Replica     // the other nodes' replicas, in order; only the owner knows them
	// Commits is how many seconds appends took until the entry was on a majority, while the
	// node owned the shard, since it was started.
	Commits telemetry.Distribution
}

// Replica is the knowledge of a shard's owner about another node's replica.
type Replica struct {
	Node   wlog.NodeID
	Voter  bool       // counts for a majority
	Active bool       // answered within the last election timeout
	State  string     // "probe", "replicate", or "snapshot" while the owner sends where the log begins
	Match  wlog.Index // up to which its log is known to be the owner's
	Lag    uint64     // entries that it lacks
	Silent bool       // it has not answered this owner yet, so Lag is unknown
}

// Relayed counts connections that a node has relayed for clients of vhosts that other nodes
// own.
type Relayed struct {
	Open              int    // now
	Total             uint64 // since the node was started
	BytesIn, BytesOut uint64 // from clients to owners, and back
}

// Copy describes logs that are one node's copies of a cluster's shards. A backup contains
// it, and restoring the backup needs it.
type Copy struct {
	Node    wlog.NodeID `json:"node"`
	Address string      `json:"address"`    // at which the other nodes reached it
	Shards  uint32      `json:"shards"`     // of vhosts; the registry is one more
	Format  uint32      `json:"log_format"` // of the logs that the cluster writes
}
