package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/cluster"
	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// Restore makes a data directory from the archive that r yields. The directory must be
// missing or empty, and is locked meanwhile.
//
// All files are written to a folder inside it, synced, verified there (digests and logs),
// and then renamed to their final places. Until the last one is in place, a broker refuses
// to start on the directory, whatever interrupts Restore. After an error the directory is
// as it was before.
//
// Of the backup of a cluster, Restore makes the data directory of the first node of a new cluster.
func Restore(ctx context.Context, r io.Reader, path string) (*Manifest, []seg.ShardReport, error) {
	_, err := os.Stat(path)
	created := errors.Is(err, fs.ErrNotExist)
	if err := checkEmpty(path); err != nil {
		return nil, nil, err
	}
	dir, err := vfs.Make(path)
	if err != nil {
		return nil, nil, err
	}
	unlock, err := seg.Lock(dir)
	if err != nil {
		return nil, nil, err
	}
	if err := checkEmpty(path); err != nil { // a broker may have started and ended before the lock
		return nil, nil, errors.Join(err, unlock())
	}
	t := &restoration{ctx: ctx, dir: dir}
	m, reports, err := t.run(&interruptible{ctx, r})
	if err == nil {
		return m, reports, unlock()
	}
	err = errors.Join(err, t.undo(), unlock(), os.Remove(filepath.Join(path, lockFile)))
	if created {
		err = errors.Join(err, os.Remove(path))
	}
	return nil, nil, err
}

// lockFile is a file that stays behind in a directory that was locked.
const lockFile = "LOCK"

// checkEmpty refuses a directory that contains anything, except a file system's own folder and an unlocked lock file.
func checkEmpty(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != "lost+found" && e.Name() != lockFile {
			return fmt.Errorf("%s is not empty: there is %s; restore into a folder that is empty or missing, and move this one aside first", path, e.Name())
		}
	}
	return nil
}

// interruptible is a reader that fails when a context ends.
type interruptible struct {
	ctx context.Context
	io.Reader
}

func (r *interruptible) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}

// restoration is a [Sink] that writes to a folder inside a data directory.
type restoration struct {
	ctx    context.Context
	dir    vfs.Dir
	folder vfs.Dir  // "" = not made yet
	placed []string // names of files that are in place in the data directory
	marked bool     // the data directory is marked as unfinished, see cluster.Mark
}

var _ Sink = (*restoration)(nil)

func (t *restoration) run(r io.Reader) (*Manifest, []seg.ShardReport, error) {
	m, err := Read(r, t)
	if err != nil {
		return nil, nil, err
	}
	reports, err := t.verify()
	if err != nil {
		return nil, nil, err
	}
	if m.Copy != nil {
		return m, reports, t.found(m.Copy)
	}
	return m, reports, t.place(m)
}

// Begin implements [Sink]. It marks each log as begun, so that no broker mistakes the directory for an empty one.
func (t *restoration) Begin(m *Manifest) error {
	archived, need := m.Bytes()
	if m.Copy != nil {
		need += archived // they are copied once more
	}
	if space, ok := vfs.SpaceOf(t.dir); ok && space.Free < need {
		return fmt.Errorf("%s: %d bytes are free, and the backup needs %d", t.dir, space.Free, need)
	}
	if m.Copy != nil {
		t.marked = true
		if err := cluster.Mark(string(t.dir)); err != nil {
			return err
		}
	}
	for i := range m.Files {
		if f := &m.Files[i]; f.isBeginning() && m.Copy == nil {
			file, err := t.dir.Open(f.Name, vfs.Create)
			if err != nil {
				return err
			}
			t.placed = append(t.placed, f.Name)
			if err := file.Close(); err != nil {
				return err
			}
		}
	}
	if err := t.dir.Sync(); err != nil {
		return err
	}
	folder, err := os.MkdirTemp(string(t.dir), "restore-")
	if err != nil {
		return err
	}
	t.folder = vfs.Dir(folder)
	return os.Mkdir(t.path(PolicyFolder), 0o700)
}

func (t *restoration) path(name string) string {
	return filepath.Join(string(t.folder), filepath.FromSlash(name))
}

// Create implements [Sink].
func (t *restoration) Create(f *File) (io.WriteCloser, error) {
	folder, name := t.folder, f.Name
	if policy, ok := strings.CutPrefix(name, PolicyFolder+"/"); ok {
		folder, name = vfs.Dir(t.path(PolicyFolder)), policy
	}
	file, err := folder.Open(name, vfs.Create|vfs.Direct)
	if err != nil {
		return nil, err
	}
	return &restored{file: file, size: f.Size}, nil
}

// restored is a file that is being restored.
type restored struct {
	file vfs.File
	size int64
	off  int64
	part [1][]byte
}

func (r *restored) Write(b []byte) (int, error) {
	r.part[0] = b
	if err := r.file.Writev(r.off, r.part[:]); err != nil {
		return 0, err
	}
	r.off += int64(len(b))
	return len(b), nil
}

// Close writes the zeros at the end of the file, and makes the file durable.
func (r *restored) Close() error {
	var err error
	if r.size > r.off {
		err = r.file.Allocate(r.size)
	}
	return errors.Join(err, r.file.Sync(), r.file.Close())
}

// verify reads the logs.
func (t *restoration) verify() ([]seg.ShardReport, error) {
	reports, err := seg.Verify(t.ctx, t.folder)
	for i := range reports {
		for _, d := range reports[i].Damage {
			err = errors.Join(err, d)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the logs in the backup cannot be used: %w", err)
	}
	return reports, nil
}

// place renames all files to their final places, in the order of the manifest: policies
// come before the logs that need them.
func (t *restoration) place(m *Manifest) error {
	policies := vfs.Dir(filepath.Join(string(t.dir), PolicyFolder))
	for i := range m.Files {
		f := &m.Files[i]
		if i == 0 && f.isPolicy() {
			if err := os.MkdirAll(string(policies), 0o700); err != nil { // a broker that failed to start may have made it
				return err
			}
		}
		if i > 0 && m.Files[i-1].isPolicy() && !f.isPolicy() {
			if err := errors.Join(policies.Sync(), t.dir.Sync()); err != nil {
				return err
			}
		}
		if err := os.Rename(t.path(f.Name), filepath.Join(string(t.dir), filepath.FromSlash(f.Name))); err != nil {
			return err
		}
		t.placed = append(t.placed, f.Name)
	}
	parent := vfs.Dir(filepath.Dir(filepath.Clean(string(t.dir))))
	return errors.Join(t.dir.Sync(), os.RemoveAll(string(t.folder)), t.dir.Sync(), parent.Sync())
}

// found makes the folder of a node of a new cluster of the copies in the folder.
func (t *restoration) found(about *replicas.Copy) error {
	c, err := cluster.OpenCopies(t.folder, *about)
	if err != nil {
		return err
	}
	_, err = cluster.RestoreIn(t.ctx, c, string(t.dir))
	if err = errors.Join(err, c.Close()); err != nil {
		return err
	}
	t.marked = false
	return errors.Join(os.RemoveAll(string(t.folder)), t.dir.Sync())
}

// undo removes all files that were written. It removes the whole folder of policies: a
// broker that is started in the meantime creates a folder there for compiled policies
// before it looks for the lock.
func (t *restoration) undo() error {
	all := os.RemoveAll(filepath.Join(string(t.dir), PolicyFolder))
	if t.folder != "" {
		all = errors.Join(all, os.RemoveAll(string(t.folder)))
	}
	if t.marked {
		all = errors.Join(all, cluster.Unmark(string(t.dir)))
	}
	for _, name := range slices.Backward(t.placed) {
		if err := os.Remove(filepath.Join(string(t.dir), filepath.FromSlash(name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}
