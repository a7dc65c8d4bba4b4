package quorum

import (
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
)

// Role is the role of a replica.
type Role uint8

// The roles.
const (
	Stopped   Role = iota // not running: ReplicaStatus.Err says why
	Follower              // receives entries from the owner
	Learner               // receives entries, and has no vote yet
	Candidate             // asks for votes
	Owner                 // appends entries; it may still have to learn which earlier entries are committed, see wlog.Ownership
)

// String returns "stopped", "follower", "learner", "candidate" or "owner".
func (r Role) String() string {
	return [...]string{"stopped", "follower", "learner", "candidate", "owner"}[r]
}

// ReplicaStatus describes a node's replica of a shard. Indices count Raft's entries, of which some have no body.
type ReplicaStatus struct {
	Shard     uint32
	Role      Role
	Owner     wlog.NodeID // as far as the node knows; 0 = none
	Term      uint64
	Voters    []wlog.NodeID // in order; there may be four while a node is being replaced
	First     uint64        // first entry that was not trimmed
	Last      uint64        // last entry on the disk
	Commit    uint64        // last entry known to be on a majority
	Applied   uint64        // last entry that was applied
	Elections uint64        // owners since the replica was started
	// Commits are the seconds from an append until the entry was durable on a majority, while the node owned the shard.
	Commits telemetry.Distribution
	Bytes   int64        // of the log on the disk; 0 if the local engine does not say
	Peers   []PeerStatus // other nodes' replicas, in order; only the owner knows them
	Err     error        // why the replica does not run; nil = it runs, or was not started
}

// PeerStatus describes another node's replica, as the owner sees it.
type PeerStatus struct {
	Node    wlog.NodeID
	Match   uint64 // last entry that the replica is known to have
	Lag     uint64 // number of entries that it lacks
	Learner bool   // it has no vote yet
	Active  bool   // it has answered within the last election timeout
	State   string // "probe"; "replicate"; or "snapshot", while the owner sends it the beginning of the log
}

// status has the counters of a replica. They belong to run.
type status struct {
	elections uint64
	commits   *telemetry.Histogram
}

func newStatus() status { return status{commits: telemetry.NewHistogram(telemetry.Latencies)} }

func (s *status) committed(since time.Time) { s.commits.Add(time.Since(since).Seconds(), 1) }

// Status returns the states of all replicas that were started, or whose start has failed.
func (e *Engine) Status() []ReplicaStatus {
	e.mu.Lock()
	shards := maps.Clone(e.replicas)
	e.mu.Unlock()
	all := make([]ReplicaStatus, 0, len(shards))
	for shard, s := range shards {
		all = append(all, e.statusOf(shard, s))
	}
	slices.SortFunc(all, func(a, b ReplicaStatus) int { return int(a.Shard) - int(b.Shard) })
	return all
}

func (e *Engine) statusOf(shard uint32, s *shardReplica) ReplicaStatus {
	st := ReplicaStatus{Shard: shard}
	r := s.current.Load()
	if r == nil {
		if err := s.failed.Load(); err != nil {
			st.Err = *err
		}
		return st
	}
	answer := make(chan ReplicaStatus, 1)
	if r.do(func() { answer <- r.describe() }) == nil {
		select {
		case st = <-answer:
		case <-r.ended:
		}
	}
	st.Err = r.failure()
	st.Commits = r.status.commits.Read()
	stats, _ := e.options.Local.Stats(shard)
	st.Bytes = stats.Bytes
	return st
}

// failure returns the reason for which the replica has ended; nil = it runs.
func (r *replica) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// describe returns the part of the status that belongs to run.
func (r *replica) describe() ReplicaStatus {
	g := r.group
	st := ReplicaStatus{
		Shard: r.shard, Role: g.role(), Owner: wlog.NodeID(g.leader), Term: g.term,
		First: g.disk.base.index + 1, Last: g.disk.last().index, Commit: g.node.BasicStatus().GetCommit(), Applied: g.applied,
		Elections: r.status.elections,
	}
	c := g.disk.configurationAt(g.applied)
	for _, id := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(c.GetVoters(), c.GetVotersOutgoing())))) {
		st.Voters = append(st.Voters, wlog.NodeID(id))
	}
	for _, p := range g.peers() {
		st.Peers = append(st.Peers, PeerStatus{
			Node: wlog.NodeID(p.id), Match: p.match, Lag: st.Last - min(p.match, st.Last), Learner: p.learner, Active: p.active || r.spaces.heard(p.id), State: p.name(),
		})
	}
	return st
}

func (g *group) role() Role {
	switch g.state {
	case raft.StateLeader:
		return Owner
	case raft.StateCandidate, raft.StatePreCandidate:
		return Candidate
	default:
	}
	if slices.Contains(g.disk.configurationAt(g.applied).GetLearners(), g.id) {
		return Learner
	}
	return Follower
}
