package seg

import (
	"context"
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

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
