package quorum

import (
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
)

// Role is what a replica does.
type Role uint8

// The roles.
const (
	Stopped   Role = iota // it does not run: ReplicaStatus.Err says why
	Follower              // it has what the owner sends
	Learner               // it does, and has no vote yet
	Candidate             // it wants to own the shard
	Owner                 // it decides what comes next. It may still have to find out what came before: see wlog.Ownership
)

// String returns "stopped", "follower", "learner", "candidate" or "owner".
func (r Role) String() string {
	return [...]string{"stopped", "follower", "learner", "candidate", "owner"}[r]
}

// ReplicaStatus describes a node's replica of a shard. Entries are counted by Raft, which has some without a body.
type ReplicaStatus struct {
	Shard     uint32
	Role      Role
	Owner     wlog.NodeID // as far as the node knows; 0 = nobody
	Term      uint64
	Voters    []wlog.NodeID // that decide about the shard, in order. While a node is being replaced there may be four
	First     uint64        // index of the first entry that is not trimmed
	Last      uint64        // of the last one on the disk
	Commit    uint64        // of the last one that is known to be on a majority
	Applied   uint64        // of the last one that was followed, or waited for
	Elections uint64        // owners that the replica has had since it was started
	// Commits is how many seconds appends took until the entry was durable on a majority, while the node owned the shard.
	Commits telemetry.Distribution
	Bytes   int64        // that the log has on the disk; 0 if the local engine does not say
	Peers   []PeerStatus // the other nodes' replicas, in order; only the owner knows them
	Err     error        // why the replica does not run; nil = it does, or was not started
}

// PeerStatus describes another node's replica, as its owner sees it.
type PeerStatus struct {
	Node    wlog.NodeID
	Match   uint64 // index of the last entry that it is known to have
	Lag     uint64 // entries that it lacks
	Learner bool   // it has no vote yet
	Active  bool   // it has answered within the last election timeout
	State   string // "probe", "replicate", or "snapshot" while it is told where the log begins
}

// status is what a replica counts. It belongs to run.
type status struct {
	elections uint64
	commits   *telemetry.Histogram
}

func newStatus() status { return status{commits: telemetry.NewHistogram(telemetry.Latencies)} }

func (s *status) committed(since time.Time) { s.commits.Add(time.Since(since).Seconds(), 1) }

// Status returns the states of all replicas that were started, or should have been.
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

// failure returns why the replica has ended, nil if it runs.
func (r *replica) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// describe returns what run knows.
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
