package quorum

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

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
