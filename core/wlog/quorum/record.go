package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

// A replica writes its part of a shard in entries of a local log. Each entry of the local log is a list of records:
//
//	hardState  term u64 | vote u64 | commit u64
//	entry      index u64 | term u64 | type u8 | size u32 | data
//	beginning  index u64 | term u64 | configuration       the entries through index were trimmed
//	anew       index u64 | term u64 | configuration       all entries are void, and the log goes on behind index
//	time       term u64 | ahead i64                       the time of the term's owner is ahead of the machine's clock by at least ahead ns
//
// A configuration is four lists of nodes (voters, learners, outgoing voters, next
// learners), each n u8 | n × u64, and autoLeave u8. Numbers are little-endian. An entry
// replaces the entry with the same index and all entries behind that.
const (
	recHardState = 1 + iota
	recEntry
	recBeginning
	recAnew
	recTime
)

const (
	hardStateSize   = 1 + 3*8
	entryHeaderSize = 1 + 2*8 + 1 + 4
	timeSize        = 1 + 2*8
)

// position is the place of an entry in a log. Two entries with the same position are the same entry.
type position struct{ index, term uint64 }

// hardState is the state that a replica must not forget: the latest term, its vote in that
// term, and the index through which entries are committed.
type hardState struct{ term, vote, commit uint64 }

func hardStateOf(m *raftpb.Message) (h hardState, some bool) {
	h = hardState{m.GetTerm(), m.GetVote(), m.GetCommit()}
	return h, h != hardState{}
}

func appendHardState(b []byte, h hardState) []byte {
	b = append(b, recHardState)
	b = binary.LittleEndian.AppendUint64(b, h.term)
	b = binary.LittleEndian.AppendUint64(b, h.vote)
	return binary.LittleEndian.AppendUint64(b, h.commit)
}

func appendTime(b []byte, k kept) []byte {
	b = append(b, recTime)
	b = binary.LittleEndian.AppendUint64(b, k.term)
	return binary.LittleEndian.AppendUint64(b, uint64(k.ahead))
}

func appendEntry(b []byte, e *raftpb.Entry) []byte {
	b = append(b, recEntry)
	b = binary.LittleEndian.AppendUint64(b, e.GetIndex())
	b = binary.LittleEndian.AppendUint64(b, e.GetTerm())
	b = append(b, byte(e.GetType()))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(e.GetData())))
	return append(b, e.GetData()...)
}

func appendBeginning(b []byte, kind byte, p position, c *raftpb.ConfState) []byte {
	b = append(b, kind)
	b = binary.LittleEndian.AppendUint64(b, p.index)
	b = binary.LittleEndian.AppendUint64(b, p.term)
	for _, nodes := range [...][]uint64{c.GetVoters(), c.GetLearners(), c.GetVotersOutgoing(), c.GetLearnersNext()} {
		b = append(b, byte(len(nodes)))
		for _, n := range nodes {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
	}
	if c.GetAutoLeave() {
		return append(b, 1)
	}
	return append(b, 0)
}

// records reads the records of an entry of the local log.
type records struct {
	b   []byte
	off int
	bad bool
}

func (r *records) take(n int) []byte {
	if n > len(r.b)-r.off {
		r.bad, r.off = true, len(r.b)
		return make([]byte, min(n, 8))
	}
	r.off += n
	return r.b[r.off-n : r.off]
}

func (r *records) u8() byte    { return r.take(1)[0] }
func (r *records) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *records) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

func (r *records) position() position { return position{index: r.u64(), term: r.u64()} }

func (r *records) configuration() *raftpb.ConfState {
	var lists [4][]uint64
	for i := range lists {
		for range r.u8() {
			lists[i] = append(lists[i], r.u64())
		}
	}
	c := &raftpb.ConfState{Voters: lists[0], Learners: lists[1], VotersOutgoing: lists[2], LearnersNext: lists[3]}
	if r.u8() != 0 {
		c.AutoLeave = new(true)
	}
	return c
}

// errRecord says that a local log has a record that no replica writes.
var errRecord = errors.New("not a record of a replica")

// replay applies the records of an entry of the local log.
func (d *disk) replay(at wlog.Index, b []byte) error {
	r := &records{b: b}
	for r.off < len(b) && !r.bad {
		switch kind := r.u8(); kind {
		case recHardState:
			d.hard = hardState{r.u64(), r.u64(), r.u64()}
		case recEntry:
			p := r.position()
			typ, size := raftpb.EntryType(r.u8()), int64(r.u32())
			e := stored{at: at, off: r.off, size: uint32(size), term: p.term, typ: typ}
			if r.take(int(min(size, math.MaxInt32))); r.bad {
				break
			}
			if err := d.replayEntry(p.index, e); err != nil {
				return err
			}
		case recBeginning:
			d.began = at
			if err := d.replayBeginning(r.position(), r.configuration()); err != nil {
				return err
			}
		case recAnew:
			d.began = at
			d.restart(r.position(), r.configuration())
		case recTime:
			d.time = kept{r.u64(), time.Duration(r.u64())}
		default:
			return fmt.Errorf("%w: kind %d", errRecord, kind)
		}
	}
	if r.bad {
		return fmt.Errorf("%w: it is cut off", errRecord)
	}
	return nil
}

// replayEntry is put during a replay. A trimmed local log may still have its latest trimmed
// entries and beginnings. So there may be gaps, each followed by a beginning.
func (d *disk) replayEntry(index uint64, e stored) error {
	if index > 0 && (index <= d.base.index || index > d.last().index+1) {
		d.base, d.entries, d.begun = position{index: index - 1}, nil, false
	}
	return d.put(index, e)
}

func (d *disk) replayBeginning(p position, c *raftpb.ConfState) error {
	switch {
	case d.begun && p.index < d.base.index:
		return fmt.Errorf("%w: it trims through %d after %d", errRecord, p.index, d.base.index)
	case p.index < d.base.index: // a later beginning replaces this one
	case p.index == d.base.index:
		d.base, d.conf, d.begun = p, c, true
	case p.index > d.last().index:
		d.restart(p, c)
	default:
		d.forget(p, c)
	}
	return nil
}
