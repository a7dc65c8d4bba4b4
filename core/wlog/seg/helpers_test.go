package seg

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// small returns options with segments that are soon full.
func small() Options { return Options{SegmentSize: 64 << 10, inline: true} }

// appendAnyhow appends an entry to the active segment, even where the end is kept from it, once the next segment is prepared.
func (l *shardLog) appendAnyhow(entry []byte) (at wlog.Index, err error) {
	l.mu.Lock()
	defer l.unlock()
	l.pool.want(l.active.number, l.active.size)
	if err := l.pool.wait(); err != nil {
		return 0, err
	}
	h := l.chain.Next(wlog.Data, l.shard, l.Clock())
	if at, err = l.append(&h, entry); err == nil {
		err = l.sync()
	}
	l.active.last = at
	return at, err
}

func newEngine(t *testing.T, fsys vfs.FS, o Options) *Engine {
	t.Helper()
	e, err := New(fsys, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// shard is an open shard, with the entries of its replay.
type shard struct {
	*shardLog
	engine *Engine
	found  []string
}

// openShard opens shard 0 with an engine of its own, which the test must close.
func openShard(t *testing.T, fsys vfs.FS, o Options) *shard {
	t.Helper()
	s, err := tryOpen(t, fsys, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tryOpen(t *testing.T, fsys vfs.FS, o Options) (*shard, error) {
	t.Helper()
	e, err := New(fsys, o)
	if err != nil {
		return nil, err
	}
	s := &shard{engine: e}
	l, err := s.engine.Open(t.Context(), 0, func(_ wlog.Index, entry []byte) error {
		s.found = append(s.found, string(entry))
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, s.engine.Close())
	}
	s.shardLog = l.(*shardLog)
	return s, nil
}

func (s *shard) close(t *testing.T) {
	t.Helper()
	must(t, s.engine.Close())
}

func (s *shard) append(t *testing.T, entry string) wlog.Index {
	t.Helper()
	at, err := s.Append(t.Context(), []byte(entry), wlog.Bringing)
	must(t, err)
	return at
}

// fillUntil appends entries of size bytes until the segment with that number is active, and returns how many entries that took.
func (s *shard) fillUntil(t *testing.T, number uint32, size int) int {
	t.Helper()
	entry := string(bytes.Repeat([]byte("x"), size))
	for n := 1; ; n++ {
		at := s.append(t, entry)
		if got, _ := locate(at); got >= number {
			return n
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fileNames returns the names of files in the directory that take space.
func fileNames(t *testing.T, fsys vfs.FS) string {
	t.Helper()
	var names []string
	for _, s := range logFiles(t, fsys) {
		names = append(names, s.Name)
	}
	return strings.Join(names, " ")
}

// logFiles returns the directory's files without the lock and the records of where logs begin.
func logFiles(t *testing.T, fsys vfs.FS) []vfs.Stat {
	t.Helper()
	stats, err := fsys.List()
	must(t, err)
	return slices.DeleteFunc(stats, func(s vfs.Stat) bool { return s.Name == lockName || strings.HasSuffix(s.Name, ".first") })
}

// damageOf opens shard 0, which must be refused, and returns the damage.
func damageOf(t *testing.T, fsys vfs.FS) *Damage {
	t.Helper()
	s, err := tryOpen(t, fsys, small())
	if err == nil {
		s.close(t)
		t.Fatal("a damaged log was opened")
	}
	d, ok := errors.AsType[*Damage](err)
	if !ok || !errors.Is(err, wlog.ErrDamaged) {
		t.Fatalf("got error %v, want damage", err)
	}
	return d
}

// overwrite writes into a file behind the engine's back.
func overwrite(t *testing.T, fsys vfs.FS, name string, off int64, b []byte) {
	t.Helper()
	f, err := fsys.Open(name, vfs.Write)
	must(t, err)
	must(t, errors.Join(f.Writev(off, [][]byte{b}), f.Sync(), f.Close()))
}

// read reads a whole file.
func read(t *testing.T, fsys vfs.FS, f vfs.Stat) []byte {
	t.Helper()
	file, err := fsys.Open(f.Name, vfs.Read)
	must(t, err)
	b := make([]byte, f.Size)
	if _, err := file.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	must(t, file.Close())
	return b
}

var errBroken = errors.New("broken")

// failAll makes every operation of a kind fail until the next Inject.
func failAll(fsys *crashfs.FS, kind crashfs.OpKind) {
	fsys.Inject(func(op crashfs.Op) error {
		if op.Kind == kind {
			return errBroken
		}
		return nil
	})
}

// fullFile is a file on a disk without space.
type fullFile struct{ vfs.File }

func (fullFile) Writev(int64, [][]byte) error { return syscall.ENOSPC }
