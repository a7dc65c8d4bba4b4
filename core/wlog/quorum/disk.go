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

// disk is a replica's copy of a shard, in a local log. It belongs to the goroutine of its group, except for methods that say otherwise.
//
// The local log is only appended to. Trimmed entries are gone for good, and no snapshot replaces them, because no node needs their
// contents. A replica that lags behind the trim therefore receives only the position where the log begins, and no state.
// It implements [raft.Storage].
type disk struct {
	log  wlog.Log
	hard hardState
	time kept // as found when the disk was opened

	mu sync.RWMutex // the group's goroutine holds it to change base or entries, others to read them

	base    position            // of the last trimmed entry
	conf    *raftpb.ConfState   // in force at base
	begun   bool                // base is known
	began   wlog.Index          // entry of the local log that states base, when the disk was opened
	gone    int64               // bytes of all entries through base that were ever there
	changed []configurationFrom // configurations of applied entries behind base, in order
	entries []stored            // behind base

	cached int // bytes of the entries that are in memory
	cold   int // entries[:cold] are not in memory
}

// configurationFrom is a configuration and the entry from which on it is in force.
type configurationFrom struct {
	index uint64
	conf  *raftpb.ConfState
}

// stored is an entry in the local log.
type stored struct {
	entry *raftpb.Entry // nil unless it is in memory
	at    wlog.Index    // entry of the local log that holds it
	off   int           // of its data within that entry
	size  uint32
	term  uint64
	typ   raftpb.EntryType
	sum   int64 // bytes of all entries through this one that were ever there
}

// cacheBytes is about how much of the latest entries stays in memory, for replicas that are a little behind.
const cacheBytes = 16 << 20

var _ raft.Storage = (*disk)(nil)

// first is the position before the first entry of every shard. It is not 0, because a new node's replica, which has nothing, must receive
// the configuration as the beginning of the log, and Raft sends a beginning only to a node that lacks trimmed entries.
var first = position{index: 1, term: 1}

// openDisk replays the shard's copy in engine. If there is none and voters are given, openDisk begins the log of a new cluster. A node that
// joins a cluster has no voters.
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
	d.hard.commit = max(d.hard.commit, d.base.index) // trimmed entries were committed
	return d, nil
}

// begin begins the log of a new cluster. All nodes of the cluster write the same beginning.
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

func (d *disk) last() position {
	if n := len(d.entries); n > 0 {
		return position{d.base.index + uint64(n), d.entries[n-1].term}
	}
	return d.base
}

// trimmed returns the term of the last trimmed entry; 0 = no entry of the shard was trimmed.
func (d *disk) trimmed() uint64 {
	if d.base.index <= first.index {
		return 0
	}
	return d.base.term
}

// settled returns the last entry that need not be applied again: it is committed, and no entry through it changes the configuration.
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

// lastBody returns the last entry with a body at or before an index, and that entry's header; 0 = there is none.
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

// recent returns the index of the first entry in memory.
func (d *disk) recent() uint64 { return d.base.index + 1 + uint64(d.cold) }

// put records that an entry is in the local log. It replaces the entry with that index and all entries behind it.
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

// sum returns the bytes of the first n entries and of all entries that were trimmed before them.
func (d *disk) sum(n int) int64 {
	if n == 0 {
		return d.gone
	}
	return d.entries[n-1].sum
}

// between returns the bytes of the entries after one index and through another, without trimmed entries. Any goroutine may call it.
func (d *disk) between(after, through uint64) int64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	until := func(index uint64) int {
		return int(min(max(index, d.base.index)-d.base.index, uint64(len(d.entries))))
	}
	return max(0, d.sum(until(through))-d.sum(until(after)))
}

// evict drops an entry from memory.
func (d *disk) evict(i int) {
	if e := &d.entries[i]; e.entry != nil {
		d.cached -= int(e.size)
		e.entry = nil
	}
}

// forget drops the entries through a position; c was the configuration there.
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
	rest := make([]stored, len(d.entries)-n) // frees the memory of trimmed entries
	copy(rest, d.entries[n:])
	d.entries, d.cold = rest, max(0, d.cold-n)
	d.base, d.conf, d.begun = p, c, true
	for len(d.changed) > 0 && d.changed[0].index <= p.index {
		d.changed = d.changed[1:]
	}
}

// restart drops all entries: the log goes on behind a position.
func (d *disk) restart(p position, c *raftpb.ConfState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = d.sum(len(d.entries))
	d.entries, d.changed, d.cached, d.cold = nil, nil, 0, 0
	d.base, d.conf, d.begun = p, c, true
}

// reconfigured notes the configuration that an applied entry has established.
func (d *disk) reconfigured(index uint64, c *raftpb.ConfState) {
	d.changed = append(d.changed, configurationFrom{index, c})
}

// configurationAt returns the configuration in force at an entry that is there, or at base.
func (d *disk) configurationAt(index uint64) *raftpb.ConfState {
	c := d.conf
	for i := range d.changed {
		if d.changed[i].index <= index {
			c = d.changed[i].conf
		}
	}
	return c
}

func (d *disk) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return &raftpb.HardState{Term: new(d.hard.term), Vote: new(d.hard.vote), Commit: new(d.hard.commit)}, d.conf, nil
}

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

func (d *disk) LastIndex() (uint64, error) { return d.last().index, nil }

func (d *disk) FirstIndex() (uint64, error) { return d.base.index + 1, nil }

// Snapshot implements [raft.Storage]. A snapshot has no data; it states where the log begins.
func (d *disk) Snapshot() (*raftpb.Snapshot, error) {
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(d.base.index), Term: new(d.base.term), ConfState: d.conf,
	}}, nil
}

// beginning returns the index of the last trimmed entry. Any goroutine may call it.
func (d *disk) beginning() uint64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.base.index
}

// find returns an entry with a body. Any goroutine may call it. ok is false if the entry was trimmed, or has no body because it is Raft's
// own.
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

// body returns an entry's body, which is valid until the next call with buf and must not be changed. Any goroutine may call it. ok is false
// if the entry has no body.
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
