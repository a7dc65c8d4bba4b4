package seg

import (
	"context"
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// walk reads a shard's log from its first segment to its end. It belongs to one goroutine.
type walk struct {
	scanner
	segments []*segment
	first    uint32 // number of the first segment, though older ones may still be there; 0 = not recorded
	// damaged is called with each damage. If it returns an error, the walk ends with that; otherwise the walk continues behind the damage.
	damaged func(*Damage) error

	ends []ending // ends of the segments read so far
}

// openAll opens a shard's segments in order.
func openAll(fsys vfs.FS, found []named, mode vfs.Mode) ([]*segment, error) {
	var segments []*segment
	for _, f := range found {
		g, err := open(fsys, f, mode)
		if err != nil {
			return nil, errors.Join(err, closeAll(segments))
		}
		segments = append(segments, g)
	}
	return segments, nil
}

// open opens the shard's segments among all files of the directory.
func (w *walk) open(fsys vfs.FS, all []named, mode vfs.Mode) (err error) {
	w.first = recordedFirst(all, w.shard)
	w.segments, err = openAll(fsys, ofShard(all, w.shard, segmentFile), mode)
	return err
}

func closeAll(segments []*segment) error {
	var all error
	for _, g := range segments {
		if g.bad == nil {
			all = errors.Join(all, g.file.Close())
		}
	}
	return all
}

// run visits every entry. Without an error, the log ends in the last segment that has an ending; later segments have no entries.
func (w *walk) run(ctx context.Context) error {
	if len(w.segments) == 0 && w.first != 0 {
		return w.missing(w.first, w.first)
	}
	for i := range w.segments {
		if err := w.follows(i); err != nil {
			return err
		}
		d, err := w.visitSegment(ctx, i)
		if err != nil {
			return err
		}
		switch {
		case d != nil:
			if err := w.damaged(d); err != nil {
				return err
			}
			w.chain = wlog.Chain{}
		case !w.ends[i].closed:
			return w.unused(w.segments[i+1:])
		}
	}
	return w.successor()
}

// unused reports damage of segments that have no entries yet.
func (w *walk) unused(segments []*segment) error {
	for _, g := range segments {
		if g.bad == nil {
			continue
		}
		if err := w.damaged(g.bad); err != nil {
			return err
		}
	}
	return nil
}

// visitSegment visits the entries of the i-th segment and returns its damage.
func (w *walk) visitSegment(ctx context.Context, i int) (*Damage, error) {
	if bad := w.segments[i].bad; bad != nil {
		w.ends = append(w.ends, ending{})
		return bad, nil
	}
	end, err := w.segment(ctx, w.segments[i])
	w.ends = append(w.ends, end)
	if d, ok := errors.AsType[*Damage](err); ok {
		return d, nil
	}
	if err != nil || end.closed {
		return nil, err
	}
	d, err := w.damageAt(ctx, i, &end)
	if d != nil {
		w.ends[i].cut = false // the entry is damaged, not unfinished
	}
	return d, err
}

// follows checks that no segment is missing before the i-th.
func (w *walk) follows(i int) error {
	found, want := w.segments[i].number, w.first
	if i > 0 {
		want = w.segments[i-1].number + 1
	}
	if found == want || i == 0 && (want == 0 || found < want) {
		return nil
	}
	w.chain = wlog.Chain{}
	return w.missing(want, found-1)
}

// missing reports that the segments from first to last are missing.
func (w *walk) missing(first, last uint32) error {
	d := Damage{File: fileName(w.shard, first, segmentFile), Reason: "the file is missing"}
	if last != first {
		d.Reason += ", and those after it up to " + fileName(w.shard, last, segmentFile)
	}
	return w.damaged(&d)
}

// successor reports a missing segment at the end: a segment is closed only after the next one was made.
func (w *walk) successor() error {
	if len(w.ends) == 0 || !w.ends[len(w.ends)-1].closed {
		return nil
	}
	next := w.segments[len(w.segments)-1].number + 1
	return w.missing(next, next)
}

// damageAt returns the damage behind the i-th segment's entries, if a later entry proves that the bytes there were durable. Otherwise the
// log ends there, perhaps with an incomplete entry.
func (w *walk) damageAt(ctx context.Context, i int, end *ending) (*Damage, error) {
	from := end.at + wlog.Align
	for k, g := range w.segments[i:] {
		if g.bad != nil {
			continue // run reports it
		}
		at, found, err := w.proof(ctx, g, from)
		if err != nil {
			return nil, err
		}
		if found {
			return w.segments[i].damage(end.at, fmt.Sprintf("%v, and the log goes on in %s at byte %d", end.reason, g.name, at)), nil
		}
		if k > 1 {
			return g.damage(0, "the log ends in "+w.segments[i].name), nil
		}
		from = headerSize
	}
	return nil, nil
}

// Reader reads the logs in a directory that no engine has open, and changes nothing. Until Close it keeps other processes from opening the
// directory, unless the directory is read-only. It belongs to one goroutine.
type Reader struct {
	fs     vfs.FS
	files  []named
	unlock func() error
}

// NewReader locks a directory for reading. If another process has it locked, the error is a vfs.ErrLocked and names the process.
func NewReader(fsys vfs.FS) (*Reader, error) {
	unlock, err := lockToRead(fsys)
	if err != nil {
		return nil, err
	}
	all, err := files(fsys)
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	return &Reader{fs: fsys, files: all, unlock: unlock}, nil
}

// Shards returns the shards that have a log, in increasing order.
func (r *Reader) Shards() []uint32 { return shards(r.files) }

// Bytes returns the size of the logs' files.
func (r *Reader) Bytes() (n int64) {
	for _, f := range r.files {
		n += f.Size
	}
	return n
}

// Read calls fn with the entries of a shard that an engine would replay, in order, and with their headers. entry is valid during the call.
// Damage is an error, as for an engine.
func (r *Reader) Read(ctx context.Context, shard uint32, fn func(at wlog.Index, h *wlog.Header, entry []byte) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("shard %d: %w", shard, err)
		}
	}()
	w := walk{damaged: func(d *Damage) error { return d }, scanner: scanner{
		shard: shard,
		visit: func(_ *segment, at wlog.Index, h *wlog.Header, entry []byte) error {
			if h.Kind != wlog.Data {
				return nil
			}
			return fn(at, h, entry)
		},
	}}
	if err := w.open(r.fs, r.files, vfs.Read|vfs.Direct); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll(w.segments)) }()
	return w.run(ctx)
}

// Close unlocks the directory for other processes.
func (r *Reader) Close() error { return r.unlock() }
