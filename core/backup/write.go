package backup

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// Source is a file that goes into a backup.
type Source struct {
	File
	io.ReaderAt
	Release func() error // called when the file has been copied, and by [Contents.Close]
}

// Contents are the sources of a backup. They belong to one goroutine, which must close them.
type Contents struct {
	Manifest Manifest
	sources  []Source
	close    func() error
}

// Of returns the contents of a backup: a snapshot of the logs and the policies' files. It takes over both.
func Of(m Manifest, logs *seg.Snapshot, policies []Source) *Contents {
	c := &Contents{Manifest: m, sources: policies, close: logs.Close}
	for _, f := range logs.Files {
		c.sources = append(c.sources, Source{File{f.Name, f.Bytes, f.Size}, f, f.Release})
	}
	c.Manifest.Format = alone
	if m.Copy != nil {
		c.Manifest.Format = Format
	}
	c.Manifest.Files = make([]File, len(c.sources))
	for i := range c.sources {
		c.Manifest.Files[i] = c.sources[i].File
	}
	c.Manifest.Shards = ShardsOf(c.Manifest.Files)
	return c
}

// Close releases all files.
func (c *Contents) Close() error {
	var all error
	for i := range c.sources {
		all = errors.Join(all, c.sources[i].release())
	}
	if c.close != nil {
		all = errors.Join(all, c.close())
		c.close = nil
	}
	return all
}

func (s *Source) release() error {
	if s.Release == nil {
		return nil
	}
	err := s.Release()
	s.Release = nil
	return err
}

// piece is the number of bytes that are read and written at a time.
const piece = 512 << 10

// writer writes an archive.
type writer struct {
	tar  *tar.Writer
	time time.Time
	sums strings.Builder
	sum  hash.Hash // of the current file
	buf  []byte
	step func(written int64) error
	done int64
}

// Write writes the archive. Each file is released after it was copied. After each piece, Write calls step with the number of bytes
// copied so far; an error of step ends the backup. After an error the archive lacks its last file, and readers reject it as incomplete.
func (c *Contents) Write(ctx context.Context, w io.Writer, step func(copied int64) error) error {
	out := &writer{tar: tar.NewWriter(w), time: c.Manifest.Time, sum: sha256.New(), buf: vfs.Aligned(piece), step: step}
	if err := out.all(ctx, c); err != nil {
		return err
	}
	return out.tar.Close()
}

func (w *writer) all(ctx context.Context, c *Contents) error {
	manifest, err := json.MarshalIndent(&c.Manifest, "", " ")
	if err != nil {
		return err
	}
	if err := w.small(manifestName, append(manifest, '\n')); err != nil {
		return err
	}
	for i := range c.sources {
		s := &c.sources[i]
		if err := w.file(ctx, s); err != nil {
			return err
		}
		if err := s.release(); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return w.small(sumsName, []byte(w.sums.String()))
}

func (w *writer) write(b []byte) error {
	if _, err := w.tar.Write(b); err != nil {
		return err
	}
	_, _ = w.sum.Write(b) // never fails
	return nil
}

func (w *writer) begin(name string, size int64) error {
	w.sum.Reset()
	return w.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: w.time.Truncate(time.Second), Format: tar.FormatUSTAR,
	})
}

func (w *writer) end(name string) { fmt.Fprintf(&w.sums, "%x  %s\n", w.sum.Sum(nil), name) }

// small writes a file from memory.
func (w *writer) small(name string, b []byte) error {
	if err := w.begin(name, int64(len(b))); err != nil {
		return err
	}
	if err := w.write(b); err != nil {
		return err
	}
	w.end(name)
	return nil
}

func (w *writer) file(ctx context.Context, s *Source) error {
	if err := w.begin(s.Name, s.Bytes); err != nil {
		return err
	}
	for off := int64(0); off < s.Bytes; {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		b, err := s.read(w.buf, off)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		if err := w.write(b); err != nil {
			return err
		}
		off += int64(len(b))
		w.done += int64(len(b))
		if err := w.step(w.done); err != nil {
			return err
		}
	}
	w.end(s.Name)
	return nil
}

// read reads the next piece. It reads whole pages, if necessary beyond the end of the used part.
func (s *Source) read(buf []byte, off int64) ([]byte, error) {
	used := min(int64(len(buf)), s.Bytes-off)
	n, err := s.ReadAt(buf[:min(int64(len(buf)), s.Size-off)], off)
	if int64(n) >= used {
		return buf[:used], nil
	}
	return nil, cmp.Or(err, io.ErrUnexpectedEOF)
}
