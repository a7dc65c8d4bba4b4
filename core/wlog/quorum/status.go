package quorum

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

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

// peer is another node's replica, as far as the owner knows it.
type peer struct {
	id       uint64
	match    uint64 // the last entry that the peer is known to have
	learner  bool
	active   bool // it has answered within the last election timeout
	state    tracker.StateType
	caughtUp bool // all entries that it lacks are in memory here
}

// peers returns the other nodes' replicas, in order; none if this node does not lead.
func (g *group) peers() (all []peer) {
	if g.state != raft.StateLeader {
		return nil
	}
	recent := g.recent()
	g.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if id == g.id {
			return
		}
		all = append(all, peer{
			id: id, match: p.Match, learner: p.IsLearner, active: p.RecentActive, state: p.State,
			caughtUp: p.RecentActive && p.State == tracker.StateReplicate && p.Match+1 >= recent,
		})
	})
	slices.SortFunc(all, func(a, b peer) int { return cmp.Compare(a.id, b.id) })
	return all
}

// recent returns the first index from which on all entries are in memory: in the disk's cache, or among the entries that wait to be
// written, which replace entries on the disk.
func (g *group) recent() uint64 {
	from := g.disk.recent()
	for _, m := range g.writes {
		if es := m.GetEntries(); len(es) > 0 {
			from = min(from, es[0].GetIndex())
		}
	}
	return from
}

// name names the way in which the owner sends entries to the peer.
func (p *peer) name() string {
	switch p.state {
	case tracker.StateReplicate:
		return "replicate"
	case tracker.StateSnapshot:
		return "snapshot"
	default:
		return "probe"
	}
}

// Describe returns a function that writes an entry of a replica's local log as text, one line for each record. Below the line of an entry
// of the shard follows the text that body writes for that entry; body may be nil. An entry of the shard has the same line on all nodes,
// although each node may write it together with different records.
func Describe(body func(w io.Writer, at wlog.Index, entry []byte) error) func(w io.Writer, at wlog.Index, entry []byte) error {
	return func(w io.Writer, _ wlog.Index, b []byte) error {
		r := &records{b: b}
		for r.off < len(b) && !r.bad {
			if err := r.describe(w, body); err != nil {
				return err
			}
		}
		return nil
	}
}

// describe writes the next record as text. If no replica writes such a record, describe says so and stops, because it cannot know where the
// next record begins.
func (r *records) describe(w io.Writer, body func(w io.Writer, at wlog.Index, entry []byte) error) (err error) {
	switch kind := r.u8(); kind {
	case recHardState:
		if h := (hardState{r.u64(), r.u64(), r.u64()}); !r.bad {
			_, err = fmt.Fprintf(w, "  term %d, vote for %d, committed through %d\n", h.term, h.vote, h.commit)
		}
	case recEntry:
		p, typ, size := r.position(), raftpb.EntryType(r.u8()), int64(r.u32())
		if data := r.take(int(min(size, math.MaxInt32))); !r.bad {
			err = describeEntry(w, p, typ, data, body)
		}
	case recBeginning:
		err = r.describeBeginning(w, "begins behind")
	case recAnew:
		err = r.describeBeginning(w, "begins anew behind")
	case recTime:
		if k := (kept{r.u64(), time.Duration(r.u64())}); !r.bad {
			_, err = fmt.Fprintf(w, "  time of term %d, %v ahead of the machine's clock\n", k.term, k.ahead)
		}
	default:
		r.bad = true
	}
	if r.bad && err == nil {
		_, err = fmt.Fprintf(w, "  NOT UNDERSTOOD: %v\n", errRecord)
	}
	return err
}

func describeEntry(w io.Writer, p position, typ raftpb.EntryType, data []byte, body func(w io.Writer, at wlog.Index, entry []byte) error) error {
	what := "of the shard"
	switch {
	case typ != raftpb.EntryNormal:
		what = "of members"
	case len(data) == trimSize:
		what = "of a trim"
	case len(data) < bodyHeaderSize:
		what = "of an election"
	}
	digest := sha256.Sum256(data)
	_, err := fmt.Fprintf(w, "  entry %d, term %d, %s, %d bytes, digest %016x", p.index, p.term, what, len(data), binary.BigEndian.Uint64(digest[:]))
	if err != nil {
		return err
	}
	if typ == raftpb.EntryNormal && len(data) == trimSize {
		_, err = fmt.Fprintf(w, ", nothing before %d is needed\n", binary.LittleEndian.Uint64(data))
		return err
	}
	if typ != raftpb.EntryNormal || len(data) < bodyHeaderSize {
		_, err = fmt.Fprintln(w)
		return err
	}
	h := readBodyHeader(data)
	if _, err = fmt.Fprintf(w, ", %s, nothing before %d is needed\n", h.at.Time().UTC().Format("2006-01-02T15:04:05.000000000Z07:00"), h.trim); err != nil || body == nil {
		return err
	}
	return body(w, wlog.Index(p.index), data[bodyHeaderSize:])
}

func (r *records) describeBeginning(w io.Writer, how string) error {
	p, c := r.position(), r.configuration()
	if r.bad {
		return nil
	}
	_, err := fmt.Fprintf(w, "  %s entry %d, term %d, voters %d, learners %d, former voters %d\n", how, p.index, p.term, c.GetVoters(), c.GetLearners(), c.GetVotersOutgoing())
	return err
}
