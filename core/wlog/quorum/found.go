package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Founding is the log of a shard of a new cluster that begins with data: one node has the
// whole log and the only vote. A Founding is written while no engine runs on the local
// engine; other nodes get the log later, see [Engine.Join]. A Founding belongs to one
// goroutine.
type Founding struct {
	log     wlog.Log
	conf    *raftpb.ConfState
	base    position
	last    position
	term    uint64
	head    bodyHeader
	records []byte // not in the local log yet
}

// foundingBatch is about how many bytes of records go to the local log in one write: each write waits for the disk.
const foundingBatch = 4 << 20

// Found begins a shard's log in a local engine that has none.
func Found(ctx context.Context, local wlog.Engine, shard uint32, node wlog.NodeID) (*Founding, error) {
	return found(ctx, local, shard, &Founding{
		conf: &raftpb.ConfState{Voters: []uint64{uint64(node)}}, base: first, last: first, term: first.term,
	})
}

var errFounded = errors.New("there is a log already")

func found(ctx context.Context, local wlog.Engine, shard uint32, f *Founding) (_ *Founding, err error) {
	some := false
	f.log, err = local.Open(ctx, shard, func(wlog.Index, []byte) error { some = true; return nil })
	if err == nil && some {
		err = errors.Join(errFounded, f.log.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("shard %d: %w", shard, err)
	}
	f.records = appendBeginning(nil, recAnew, f.base, f.conf)
	return f, nil
}

// Append adds the next entry of the log. When the first owner begins, the shard's time is at least at.
func (f *Founding) Append(ctx context.Context, at hook.Instant, body []byte) error {
	if len(body) > MaxEntry {
		return fmt.Errorf("an entry of %d bytes: %w, at most %d are accepted", len(body), wlog.ErrTooLarge, MaxEntry)
	}
	data := make([]byte, bodyHeaderSize, bodyHeaderSize+len(body))
	f.head.raise(bodyHeader{at: at})
	f.head.put(data)
	return f.add(ctx, raftpb.EntryNormal, position{f.last.index + 1, f.term}, append(data, body...))
}

func (f *Founding) add(ctx context.Context, typ raftpb.EntryType, p position, data []byte) error {
	f.records = appendEntry(f.records, &raftpb.Entry{Index: &p.index, Term: &p.term, Type: &typ, Data: data})
	f.last = p
	if len(data) >= bodyHeaderSize {
		f.head.raise(readBodyHeader(data))
	}
	if len(f.records) < foundingBatch {
		return nil
	}
	return f.flush(ctx)
}

func (f *Founding) flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := f.log.Append(ctx, f.records, wlog.Bringing)
	f.records = f.records[:0]
	return err
}

// Finish makes the log durable, commits all entries and closes the log.
func (f *Founding) Finish(ctx context.Context) error {
	f.records = appendHardState(f.records, hardState{term: f.term, commit: f.last.index})
	return errors.Join(f.flush(ctx), f.log.Close())
}

// Abandon closes the log. Its contents are worthless from then on.
func (f *Founding) Abandon() error { return f.log.Close() }

// Entries returns how many entries the log has.
func (f *Founding) Entries() int { return int(f.last.index - f.base.index) }

// Entries calls fn with the entries of a shard's local log, in order. It may be called several times.
type Entries func(fn func(at wlog.Index, entry []byte) error) error

// Errors of Refound, for errors.Is.
var (
	// ErrNothing: the node's copy of the shard is empty.
	ErrNothing = errors.New("the node had not received any part of it yet")
	// ErrNoVote: the node had no vote, so its copy may lack any committed entry.
	ErrNoVote = errors.New("the node had no vote in it yet, and may have received only a part")
	// ErrIncomplete: the node had fallen behind a trim, so its copy lacks trimmed entries
	// and may lack the later entries that replace them.
	ErrIncomplete = errors.New("the node had fallen behind, and had received only a part of the entries that replace trimmed ones")
)

// Refound begins a shard's log with a copy from a node of another cluster. The log gets all
// entries of the copy. Some of them the node did not know to be committed, but they may
// have been, because the shard's owner knows of a commit first. Entries keep their indices
// and terms; changes of the configuration are left out. Refound calls seen with the body of
// each entry. The caller finishes the log.
func Refound(ctx context.Context, from Entries, copyOf wlog.NodeID, local wlog.Engine, shard uint32, node wlog.NodeID, seen func(at wlog.Index, body []byte) error,
) (*Founding, error) {
	d := &disk{conf: &raftpb.ConfState{}}
	if err := from(d.replay); err != nil {
		return nil, err
	}
	switch {
	case !d.begun && len(d.entries) > 0:
		return nil, fmt.Errorf("%w: it has no beginning", wlog.ErrDamaged)
	case !d.begun:
		return nil, ErrNothing
	}
	f, err := found(ctx, local, shard, &Founding{
		conf: &raftpb.ConfState{Voters: []uint64{uint64(node)}}, base: d.base, last: d.base, term: max(d.hard.term, d.last().term),
	})
	if err != nil {
		return nil, err
	}
	c := copying{disk: d, to: f, voted: slices.Contains(d.conf.GetVoters(), uint64(copyOf)), node: uint64(copyOf), seen: seen}
	err = from(func(at wlog.Index, entry []byte) error { return c.entry(ctx, at, entry) })
	switch {
	case err == nil && !c.voted:
		err = ErrNoVote
	case err == nil && d.base.index > first.index && c.trim <= d.base.index:
		err = ErrIncomplete
	case err == nil && f.last != d.last():
		err = fmt.Errorf("%w: it has changed meanwhile", wlog.ErrDamaged)
	}
	if err != nil {
		return nil, errors.Join(err, f.log.Close())
	}
	return f, nil
}

// copying copies the entries of a local log that were not replaced.
type copying struct {
	disk  *disk
	to    *Founding
	node  uint64
	voted bool   // node has a vote after the entries so far
	trim  uint64 // the highest trim so far: a node with all entries through here needs no entry before it
	seen  func(at wlog.Index, body []byte) error
}

// entry copies the entries within an entry of the local log. Entries that were not replaced
// lie in the local log in the order of their indices, because an entry replaces all entries
// behind the one that it replaces.
func (c *copying) entry(ctx context.Context, at wlog.Index, b []byte) error {
	for r := (&records{b: b}); r.off < len(b); {
		switch r.u8() {
		case recHardState:
			r.take(hardStateSize - 1)
		case recTime: // it belongs to the clock of a machine that may be another one
			r.take(timeSize - 1)
		case recEntry:
			p, typ, size := r.position(), raftpb.EntryType(r.u8()), int(r.u32())
			off := r.off
			data := r.take(size)
			if !c.inForce(p.index, at, off) {
				continue
			}
			if err := c.copy(ctx, p, typ, data); err != nil {
				return err
			}
		default:
			r.position()
			r.configuration()
		}
	}
	return nil
}

func (c *copying) inForce(index uint64, at wlog.Index, off int) bool {
	if index <= c.disk.base.index || index > c.disk.last().index {
		return false
	}
	s := &c.disk.entries[index-c.disk.base.index-1]
	return s.at == at && s.off == off
}

// copy copies an entry. A change of the configuration becomes an entry without a body, so
// that all other entries keep their indices.
func (c *copying) copy(ctx context.Context, p position, typ raftpb.EntryType, data []byte) error {
	if err := checkEntry(typ, data); err != nil {
		return fmt.Errorf("%w: entry %d: %w", wlog.ErrDamaged, p.index, err)
	}
	if typ != raftpb.EntryNormal {
		c.follow(data)
		data = nil
	}
	c.trim = max(c.trim, trimOf(data))
	if len(data) >= bodyHeaderSize {
		if err := c.seen(wlog.Index(p.index), data[bodyHeaderSize:]); err != nil {
			return fmt.Errorf("entry %d: %w", p.index, err)
		}
	}
	return c.to.add(ctx, raftpb.EntryNormal, p, data)
}

// follow notes a change that gives the node a vote, or takes it away.
func (c *copying) follow(data []byte) {
	for _, one := range changesIn(data) {
		if one.GetNodeId() == c.node {
			c.voted = one.GetType() == raftpb.ConfChangeType_ConfChangeAddNode
		}
	}
}

// Join gives nodes a vote in a shard that this node owns, in addition to the present
// voters; the node that founded the log is the first one. The new nodes first get the log,
// and then all get a vote in one step. Adding one vote at a time would leave a shard with
// two voters, of which neither may fail. After an interruption Join may be called again,
// like [Engine.Replace].
func (e *Engine) Join(ctx context.Context, shard uint32, nodes ...wlog.NodeID) error {
	j := &joining{}
	for _, n := range nodes {
		if n == 0 || slices.Contains(j.nodes, uint64(n)) {
			return fmt.Errorf("nodes %v join: their numbers must differ and begin with 1", nodes)
		}
		j.nodes = append(j.nodes, uint64(n))
	}
	return e.move(ctx, "join", shard, j.step)
}

// joining makes nodes voters of a shard.
type joining struct {
	reconfiguration
	nodes []uint64
}

func (j *joining) step(g *group, tick bool) (done bool, err error) {
	if g.owner == 0 {
		return false, g.notOwner()
	}
	j.wait(tick)
	c := g.disk.configurationAt(g.applied)
	strangers := without(j.nodes, c.GetVoters())
	switch {
	case len(c.GetVotersOutgoing()) > 0: // Raft ends that by itself
		return false, nil
	case len(strangers) == 0:
		return j.sealed(g, j.nodes...), nil
	case j.pause > 0:
		return false, nil
	}
	if unknown := without(strangers, c.GetLearners()); len(unknown) > 0 {
		j.change(g, single(raftpb.ConfChangeType_ConfChangeAddLearnerNode, unknown[0])) // one by one, so that no joint configuration is needed
		return false, nil
	}
	for _, p := range g.peers() {
		if slices.Contains(strangers, p.id) && !p.caughtUp {
			return false, nil
		}
	}
	j.change(g, promotion(c.GetLearners(), strangers...)...)
	return false, nil
}

// without returns the numbers that are not among others.
func without(numbers, others []uint64) (rest []uint64) {
	for _, n := range numbers {
		if !slices.Contains(others, n) {
			rest = append(rest, n)
		}
	}
	return rest
}
