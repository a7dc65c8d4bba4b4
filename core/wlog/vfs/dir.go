package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Dir is a directory of the operating system.
type Dir string

var _ FS = Dir("")

// Make returns a directory, and creates it durably if it is missing. Only its owner may read it.
func Make(path string) (Dir, error) {
	if isDir(path) {
		return Dir(path), nil
	}
	parent := filepath.Dir(filepath.Clean(path))
	if parent != path {
		if _, err := Make(parent); err != nil {
			return "", err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !isDir(path) {
		return "", err
	}
	return Dir(path), Dir(parent).Sync()
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

var flags = [...]int{
	Read:   os.O_RDONLY,
	Write:  os.O_RDWR,
	Create: os.O_RDWR | os.O_CREATE | os.O_EXCL,
	Lock:   os.O_RDWR | os.O_CREATE,
}

// Open implements [FS].
func (d Dir) Open(name string, mode Mode) (File, error) {
	direct := mode&Direct != 0
	mode &^= Direct
	f, err := os.OpenFile(d.path(name), flags[mode], 0o600)
	if err != nil {
		return nil, err
	}
	if mode != Lock && direct {
		return openDirect(f, flags[mode]), nil
	}
	if mode != Lock {
		return osFile{f}, nil
	}
	if err := lock(f); err != nil {
		_ = f.Close() // nothing was written
		return nil, &fs.PathError{Op: "lock", Path: d.path(name), Err: err}
	}
	return osFile{f}, nil
}

// List implements [FS].
func (d Dir) List() ([]Stat, error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, err
	}
	var files []Stat
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() {
			files = append(files, Stat{Name: e.Name(), Size: info.Size()})
		}
	}
	return files, nil
}

// Rename implements [FS].
func (d Dir) Rename(old, name string) error { return os.Rename(d.path(old), d.path(name)) }

// Remove implements [FS].
func (d Dir) Remove(name string) error { return os.Remove(d.path(name)) }

// Sync implements [FS].
func (d Dir) Sync() error {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(syncDir(f), f.Close())
}

// Held is a directory that stays open, so that Sync succeeds even when the process may open no more files. Otherwise a log whose file was
// renamed could not continue, and could not undo the rename reliably either.
type Held struct {
	Dir
	open *os.File
}

var _ FS = (*Held)(nil)

// Hold opens the directory. The caller closes it.
func (d Dir) Hold() (*Held, error) {
	f, err := os.Open(string(d))
	if err != nil {
		return nil, err
	}
	return &Held{d, f}, nil
}

// Sync implements [FS].
func (h *Held) Sync() error { return syncDir(h.open) }

// Close closes the directory.
func (h *Held) Close() error { return h.open.Close() }

func (d Dir) path(name string) string { return filepath.Join(string(d), name) }

// osFile is a file of the operating system. Each system has its own Writev, Sync and reserve. It implements [File].
type osFile struct{ *os.File }

func (f osFile) Allocate(size int64) error { return f.allocate(size, f.File) }

// allocate writes zeros to the same file through the handle to. Reserved blocks are not enough: the first write to a reserved block makes
// the file system change its metadata, which costs several times as much as the write.
func (f osFile) allocate(size int64, to *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := f.reserve(size); err != nil {
		return &fs.PathError{Op: "allocate", Path: f.Name(), Err: err}
	}
	zeros := Aligned(int(min(size, stageSize)))
	for off := info.Size(); off < size; off += int64(len(zeros)) {
		if _, err := to.WriteAt(zeros[:min(int64(len(zeros)), size-off)], off); err != nil {
			return err
		}
	}
	return nil
}

// writeEach is Writev with one system call for each part.
func (f osFile) writeEach(off int64, parts [][]byte) error {
	for _, p := range parts {
		if _, err := f.WriteAt(p, off); err != nil {
			return err
		}
		off += int64(len(p))
	}
	return nil
}
