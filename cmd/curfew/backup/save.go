package backup

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/curfewmq/curfew/core/backup"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// counted counts the bytes that are written.
type counted struct {
	io.Writer
	bytes int64
}

func (w *counted) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.bytes += int64(n)
	return n, err
}

// save writes a backup to a file, and returns its size. The file gets its name, and replaces a file of that name, after the backup is complete
// and durable. A file that is not an ordinary one, such as a pipe, is written to directly.
func (p *Program) save(name string, write writing) (*backup.Manifest, int64, error) {
	if name == "-" {
		out := &counted{Writer: p.Stdout}
		m, err := write(out)
		return m, out.bytes, err
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return nil, 0, err
		}
		out := &counted{Writer: f}
		m, err := write(out)
		return m, out.bytes, errors.Join(err, f.Close())
	}
	return replace(name, write)
}

const buffer = 1 << 20

// replace is save for an ordinary file. Only its owner may read it: it contains password hashes and messages.
func replace(name string, write writing) (m *backup.Manifest, size int64, err error) {
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, filepath.Base(name)+".part-")
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	buffered := bufio.NewWriterSize(f, buffer)
	out := &counted{Writer: buffered}
	if m, err = write(out); err != nil {
		return nil, 0, err
	}
	if err := errors.Join(buffered.Flush(), f.Sync()); err != nil {
		return nil, 0, err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return nil, 0, err
	}
	return m, out.bytes, errors.Join(f.Close(), vfs.Dir(dir).Sync())
}
