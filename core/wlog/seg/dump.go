package seg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// Decode writes an entry as text, in lines that end in a newline. entry is valid during the call.
type Decode func(w io.Writer, at wlog.Index, entry []byte) error

// Dump writes the log of every shard in a directory that no engine has open: a line for each entry, followed by the output of decode, which
// may be nil. Damage gets a line of its own, and Dump reads on behind it; the error is then the first Damage.
func Dump(ctx context.Context, fsys vfs.FS, w io.Writer, decode Decode) error {
	d := dumper{w: w, decode: decode}
	err := inspect(fsys, func(shard uint32, all []named) error {
		d.segment = nil
		if _, err := fmt.Fprintf(w, "shard %d\n", shard); err != nil {
			return err
		}
		return d.dump(ctx, fsys, shard, all)
	})
	if err == nil && d.first != nil {
		return d.first
	}
	return err
}

type dumper struct {
	w       io.Writer
	decode  Decode
	segment *segment // of the last line
	first   *Damage
}

func (d *dumper) dump(ctx context.Context, fsys vfs.FS, shard uint32, all []named) (err error) {
	w := walk{scanner: scanner{shard: shard, visit: d.entry}, damaged: d.damaged}
	if err := w.open(fsys, all, vfs.Read|vfs.Direct); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll(w.segments)) }()
	if err := w.run(ctx); err != nil {
		return err
	}
	if cut := w.cut(); cut != nil {
		_, err = fmt.Fprintf(d.w, "ends unfinished: %s at byte %d: %s\n", cut.File, cut.Offset, cut.Reason)
	}
	return err
}

func (d *dumper) damaged(at *Damage) error {
	if d.first == nil {
		d.first = at
	}
	_, err := fmt.Fprintf(d.w, "DAMAGED: %s at byte %d: %s\n", at.File, at.Offset, at.Reason)
	return err
}

func (d *dumper) entry(g *segment, at wlog.Index, h *wlog.Header, body []byte) error {
	if d.segment != g {
		d.segment = g
		_, err := fmt.Fprintf(d.w, "%s: %d bytes, prepared %s in epoch %d\n", g.name, g.size, stamp(g.made.Time()), g.epoch)
		if err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(d.w, "%#x: %v, %d bytes, epoch %d, %s\n", uint64(at), h.Kind, h.Size, h.Epoch, stamp(h.Time.Time()))
	if err != nil || d.decode == nil || h.Kind != wlog.Data {
		return err
	}
	if err := d.decode(d.w, at, body); err != nil {
		return fmt.Errorf("entry %#x: %w", uint64(at), err)
	}
	return nil
}

func stamp(t time.Time) string { return t.Format("2006-01-02T15:04:05.000000000Z07:00") }
