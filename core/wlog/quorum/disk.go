package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

// disk is a replica's copy of a shard, in a local log. It belongs to the goroutine of its group, but for methods that say otherwise.
//
// The local log is only appended to. Trimmed entries are gone for good, and nothing replaces them: what they said, nobody needs. So
// what a replica gets that lags behind the trim is where the log begins, and no snapshot of a state.
type disk struct {
	log  wlog.Log
	hard hardState
	time kept // that was found when the disk was opened

	mu sync.RWMutex // held by the group's goroutine when it changes base or entries; others hold it when they read them

	base    position            // of the last entry that is gone
	conf    *raftpb.ConfState   // as of base
	begun   bool                // base is known
	began   wlog.Index          // the entry of the local log that says so, when the disk was opened
	gone    int64               // bytes of all entries that were ever there, through base
	changed []configurationFrom // by entries behind base that were applied, in order
	entries []stored            // behind base

	cached int // bytes of the entries that are in memory
	cold   int // entries[:cold] are not
}

// configurationFrom is a configuration and the entry that it begins with.
type configurationFrom struct {
	index uint64
	conf  *raftpb.ConfState
}

// stored is an entry in the local log.
type stored struct {
	entry *raftpb.Entry // nil unless it is in memory
	at    wlog.Index    // the entry of the local log that has it
	off   int           // of its data in there
	size  uint32
	term  uint64
	typ   raftpb.EntryType
	sum   int64 // of the sizes of all entries that were ever there, through this one
}

// cacheBytes is about how much of the latest entries stays in memory, for replicas that are a little behind.
const cacheBytes = 16 << 20

var _ raft.Storage = (*disk)(nil)

// first is the position before the first entry of every shard. It is not the very beginning of a log: a replica without anything,
// which a new node is, must learn the configuration, too.
var first = position{index: 1, term: 1}

// openDisk replays the copy in a shard of the engine. If there is none and voters are given, it begins one of a new cluster; a node
// that joins a cluster has no voters.
func openDisk(ctx context.Context, engine wlog.Engine, shard uint32, voters []uint64) (*disk, error) {
	d := &disk{conf: &raftpb.ConfState{}}
	log, err := engine.Open(ctx, shard, d.replay)
	if err != nil {
		return nil, err
	}
	d.log, d.cold = log, len(d.entries)
	switch {
	case !d.begun && len(d.entries) > 0:
		err = fmt.Errorf("shard %d: %w: it has no beginning", shard, wlog.ErrDamaged)
	case !d.begun && len(voters) > 0:
		err = d.begin(ctx, voters)
	}
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	d.hard.commit = max(d.hard.commit, d.base.index) // what is trimmed was committed
	return d, nil
}

// begin begins the log of a new cluster. All nodes write the same.
func (d *disk) begin(ctx context.Context, voters []uint64) error {
	c := &raftpb.ConfState{Voters: voters}
	h := hardState{term: first.term, commit: first.index}
	b := appendBeginning(appendHardState(nil, h), recAnew, first, c)
	if _, err := d.log.Append(ctx, b, wlog.Bringing); err != nil {
		return err
	}
	d.hard = h
	d.restart(first, c)
	return nil
}

// last returns the position of the last entry.
func (d *disk) last() position {
	if n := len(d.entries); n > 0 {
		return position{d.base.index + uint64(n), d.entries[n-1].term}
	}
	return d.base
}

// trimmed returns the term of the last entry that is gone; 0 = all entries of the shard are there.
func (d *disk) trimmed() uint64 {
	if d.base.index <= first.index {
		return 0
	}
	return d.base.term
}

// settled returns the last entry that need not be applied again: it was committed, and nothing through it changes the configuration.
func (d *disk) settled() uint64 {
	through := d.hard.commit
	for i := range d.entries {
		index := d.base.index + 1 + uint64(i)
		if index > through {
			break
		}
		if d.entries[i].typ != raftpb.EntryNormal {
			return index - 1
		}
	}
	return through
}

// lastBody returns the last entry with a body at or before an index, and its header; 0 if there is none.
func (d *disk) lastBody(ctx context.Context, through uint64) (index uint64, h bodyHeader, err error) {
	for index = through; index > d.base.index; index-- {
		s := &d.entries[index-d.base.index-1]
		if s.typ != raftpb.EntryNormal || s.size < bodyHeaderSize {
			continue
		}
		var b [bodyHeaderSize]byte
		err = d.log.ReadAt(ctx, s.at, s.off, b[:])
		h = readBodyHeader(b[:])
		h.trim = min(h.trim, index)
		return index, h, err
	}
	return 0, bodyHeader{}, nil
}

// recent returns the index of the first of the entries that are in memory.
func (d *disk) recent() uint64 { return d.base.index + 1 + uint64(d.cold) }

// put stores that an entry is in the local log. It replaces the one with that index, and those behind it.
func (d *disk) put(index uint64, e stored) error {
	if index <= d.base.index || index > d.last().index+1 {
		return fmt.Errorf("%w: entry %d comes after %d, and %d is gone", errRecord, index, d.last().index, d.base.index)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := int(index - d.base.index - 1)
	for i := range d.entries[n:] {
		d.evict(n + i)
	}
	e.sum = d.sum(n) + int64(e.size)
	d.entries = append(d.entries[:n], e)
	if d.cold = min(d.cold, n); e.entry != nil {
		d.cached += int(e.size)
	}
	for d.cached > cacheBytes && d.cold < n {
		d.evict(d.cold)
		d.cold++
	}
	return nil
}

// sum returns the size of the first n entries, and of all before them that are gone.
func (d *disk) sum(n int) int64 {
	if n == 0 {
		return d.gone
	}
	return d.entries[n-1].sum
}

// between returns the size of the entries behind an index through another one that are there. Any goroutine may call it.
func (d *disk) between(after, through uint64) int64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	until := func(index uint64) int {
		return int(min(max(index, d.base.index)-d.base.index, uint64(len(d.entries))))
	}
	return max(0, d.sum(until(through))-d.sum(until(after)))
}

// evict takes an entry out of memory.
func (d *disk) evict(i int) {
	if e := &d.entries[i]; e.entry != nil {
		d.cached -= int(e.size)
		e.entry = nil
	}
}

// forget forgets the entries through a position, at which a configuration applied.
func (d *disk) forget(p position, c *raftpb.ConfState) {
	if p.index <= d.base.index {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := int(p.index - d.base.index)
	for i := range n {
		d.evict(i)
	}
	d.gone = d.sum(n)
	rest := make([]stored, len(d.entries)-n) // memory of those that are gone
	copy(rest, d.entries[n:])
	d.entries, d.cold = rest, max(0, d.cold-n)
	d.base, d.conf, d.begun = p, c, true
	for len(d.changed) > 0 && d.changed[0].index <= p.index {
		d.changed = d.changed[1:]
	}
}

// restart forgets all entries: the log goes on behind a position.
func (d *disk) restart(p position, c *raftpb.ConfState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = d.sum(len(d.entries))
	d.entries, d.changed, d.cached, d.cold = nil, nil, 0, 0
	d.base, d.conf, d.begun = p, c, true
}

// reconfigured notes that an entry was applied that changed the configuration.
func (d *disk) reconfigured(index uint64, c *raftpb.ConfState) {
	d.changed = append(d.changed, configurationFrom{index, c})
}

// configurationAt returns the configuration that applied at an entry that is there, or at base.
func (d *disk) configurationAt(index uint64) *raftpb.ConfState {
	c := d.conf
	for i := range d.changed {
		if d.changed[i].index <= index {
			c = d.changed[i].conf
		}
	}
	return c
}

// InitialState implements [raft.Storage].
func (d *disk) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return &raftpb.HardState{Term: new(d.hard.term), Vote: new(d.hard.vote), Commit: new(d.hard.commit)}, d.conf, nil
}

// Entries implements [raft.Storage].
func (d *disk) Entries(lo, hi, maxSize uint64) (all []*raftpb.Entry, err error) {
	if lo <= d.base.index {
		return nil, raft.ErrCompacted
	}
	if hi > d.last().index+1 {
		return nil, raft.ErrUnavailable
	}
	size := uint64(0)
	for index := lo; index < hi; index++ {
		s := &d.entries[index-d.base.index-1]
		if size += entryHeaderSize + uint64(s.size); len(all) > 0 && size > maxSize {
			break
		}
		e := s.entry
		if e == nil {
			if e, err = d.read(index, s); err != nil {
				return nil, err
			}
		}
		all = append(all, e)
	}
	return all, nil
}

func (d *disk) read(index uint64, s *stored) (*raftpb.Entry, error) {
	e := &raftpb.Entry{Index: new(index), Term: new(s.term), Type: s.typ.Enum()}
	if s.size == 0 {
		return e, nil
	}
	e.Data = make([]byte, s.size)
	return e, d.log.ReadAt(context.Background(), s.at, s.off, e.Data)
}

// Term implements [raft.Storage].
func (d *disk) Term(index uint64) (uint64, error) {
	switch {
	case index < d.base.index:
		return 0, raft.ErrCompacted
	case index == d.base.index:
		return d.base.term, nil
	case index > d.last().index:
		return 0, raft.ErrUnavailable
	default:
		return d.entries[index-d.base.index-1].term, nil
	}
}

// LastIndex implements [raft.Storage].
func (d *disk) LastIndex() (uint64, error) { return d.last().index, nil }

// FirstIndex implements [raft.Storage].
func (d *disk) FirstIndex() (uint64, error) { return d.base.index + 1, nil }

// Snapshot implements [raft.Storage]. It has no data: it says where the log begins.
func (d *disk) Snapshot() (*raftpb.Snapshot, error) {
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(d.base.index), Term: new(d.base.term), ConfState: d.conf,
	}}, nil
}

// beginning returns the index of the last entry that is gone. Any goroutine may call it.
func (d *disk) beginning() uint64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.base.index
}

// find returns an entry with a body. Any goroutine may call it. ok is false if there is none: the entry is Raft's own, or gone.
func (d *disk) find(index uint64) (s stored, ok bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if index <= d.base.index || index > d.last().index {
		return stored{}, false
	}
	s = d.entries[index-d.base.index-1]
	return s, s.typ == raftpb.EntryNormal && s.size >= bodyHeaderSize
}

// readAt reads a part of an entry's body. Any goroutine may call it.
func (d *disk) readAt(ctx context.Context, index uint64, off int, p []byte) error {
	s, ok := d.find(index)
	size := int(s.size) - bodyHeaderSize
	switch {
	case !ok:
		return wlog.ErrNoEntry
	case off < 0 || off > size || len(p) > size-off:
		return wlog.ErrRange
	case s.entry != nil:
		copy(p, s.entry.GetData()[bodyHeaderSize+off:])
		return nil
	case len(p) == 0:
		return nil
	default:
		return d.log.ReadAt(ctx, s.at, s.off+bodyHeaderSize+off, p)
	}
}

// body returns an entry's body, which is valid until the next call with buf and nobody may change. Any goroutine may call it. ok is false if
// the entry has none.
func (d *disk) body(ctx context.Context, index uint64, buf *[]byte) (_ []byte, ok bool, err error) {
	s, ok := d.find(index)
	if !ok {
		return nil, false, nil
	}
	if s.entry != nil {
		return s.entry.GetData()[bodyHeaderSize:], true, nil
	}
	size := int(s.size) - bodyHeaderSize
	*buf = slices.Grow((*buf)[:0], size)[:size]
	if size == 0 {
		return []byte{}, true, nil
	}
	return *buf, true, d.log.ReadAt(ctx, s.at, s.off+bodyHeaderSize, *buf)
}
