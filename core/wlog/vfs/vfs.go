// Package vfs is the file system interface of the embedded log engine: one flat directory of files. [Dir] is the real implementation;
// crashfs is one in memory that can lose power.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
)

// FS is a directory. Its methods may be called from many goroutines.
type FS interface {
	// Open opens a file of the directory.
	Open(name string, mode Mode) (File, error)
	// List returns the directory's files, sorted by name.
	List() ([]Stat, error)
	// Rename renames a file, and replaces a file that has the new name.
	Rename(old, name string) error
	// Remove removes a name; the file stays usable while it is open.
	Remove(name string) error
	// Sync makes the effects of Open, Rename and Remove on names durable.
	Sync() error
}

// Mode is the way in which a file is opened.
type Mode uint8

// The modes.
const (
	Read   Mode = iota // to read an existing file
	Write              // to read and write an existing file
	Create             // to read and write a new file; an existing one is an error
	Lock               // like Write, but creates a missing file, and fails with ErrLocked if it is locked
)

// Stat describes a file.
type Stat struct {
	Name string
	Size int64
}

// Direct may be added to a mode. It is a hint that the file is written from front to back and hardly ever read, so that caching it costs
// more than it saves. It does not change the results of a file's methods.
const Direct Mode = 1 << 7

// File is an open file. ReadAt may be called from many goroutines, the other methods from one at a time.
type File interface {
	io.ReaderAt
	// Writev writes parts one after another, beginning at off. After an error each part may be in the file in whole, in part or not at all,
	// now or after a crash.
	Writev(off int64, parts [][]byte) error
	// Allocate extends the file to size bytes. It adds zeros with space on the disk, so
	// that a later write there needs no space and changes no metadata.
	Allocate(size int64) error
	// Sync makes written and allocated bytes durable. After an error the file must not be relied on any more.
	Sync() error
	// Close closes the file and releases its lock.
	Close() error
}

// ErrLocked is the error for a file that another process, or another handle of this one, has locked.
var ErrLocked = errors.New("locked")

// NoSpace reports whether an error says that the disk is full, or that the user's quota is used up.
func NoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// NoFiles reports whether an error says that the process or the machine has reached its limit of open files, which includes connections.
func NoFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// Scarce reports whether an error says that a resource is used up and may be available again later: space or files.
func Scarce(err error) bool { return NoSpace(err) || NoFiles(err) }

// Replace replaces a file durably: after a crash the file has its old or its new content. The new content is first written under a
// temporary name, which may remain after an error.
func Replace(dir FS, name, temporary string, content []byte) error {
	if err := write(dir, temporary, content); err != nil {
		return err
	}
	if err := dir.Rename(temporary, name); err != nil {
		return err
	}
	return dir.Sync()
}

// write writes a new file and makes its content durable, but not its name.
func write(dir FS, name string, content []byte) error {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := dir.Open(name, Create)
	if err != nil {
		return err
	}
	if err = f.Allocate(int64(len(content))); err == nil {
		err = f.Writev(0, [][]byte{content})
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Space is the space of a file system.
type Space struct {
	Path  string // of the directory
	Free  int64  // bytes that files may still take
	Total int64  // bytes, used and free
}

// Spacious is a file system that reports its space.
type Spacious interface {
	Space() (Space, error)
}

// SpaceOf returns the space of a file system; ok is false if the file system does not report it.
func SpaceOf(fsys FS) (s Space, ok bool) {
	knows, ok := fsys.(Spacious)
	if !ok {
		return Space{}, false
	}
	s, err := knows.Space()
	return s, err == nil
}
