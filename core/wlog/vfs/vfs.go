// Package vfs is the file system interface of the embedded log engine: one flat directory of files. [Dir] is the real one; crashfs
// is one in memory that can lose power.
package vfs

import (
	"errors"
	"io"
	"syscall"
)

// FS is a directory. Its methods may be called from many goroutines.
type FS interface {
	// Open opens a file of the directory.
	Open(name string, mode Mode) (File, error)
	// List returns the directory's files, sorted by name.
	List() ([]Stat, error)
	// Rename renames a file, and replaces one that has the new name.
	Rename(old, name string) error
	// Remove removes a name; the file stays usable while it is open.
	Remove(name string) error
	// Sync makes the effects of Open, Rename and Remove on names durable.
	Sync() error
}

// Mode says what a file is opened for.
type Mode uint8

// The modes.
const (
	Read   Mode = iota // to read; it exists
	Write              // to read and write; it exists
	Create             // to read and write; it does not exist yet
	Lock               // as Write; creates the file if it is missing, and fails with ErrLocked if it is locked
)

// Stat describes a file.
type Stat struct {
	Name string
	Size int64
}

// Direct added to a mode is a hint that the file is written from front to back and hardly ever read, so that it is better not
// cached. It does not change what the methods of a file do.
const Direct Mode = 1 << 7

// File is an open file. ReadAt may be called from many goroutines, the other methods from one at a time.
type File interface {
	io.ReaderAt
	// Writev writes parts one after another, beginning at off. After an error any of them may be in the file, in whole or part,
	// now or after a crash.
	Writev(off int64, parts [][]byte) error
	// Allocate makes the file size bytes long. It adds zeros that have their space on the disk, so that writing there needs no
	// more and changes no metadata.
	Allocate(size int64) error
	// Sync makes what was written and allocated durable. After an error do not rely on the file again.
	Sync() error
	// Close closes the file and releases its lock.
	Close() error
}

// ErrLocked is the error for a file that another process, or another handle of this one, has locked.
var ErrLocked = errors.New("locked")

// NoSpace reports whether an error says that the disk is full, or the user's quota used up.
func NoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// NoFiles reports whether an error says that the process, or the machine, has as many files open as it may. Connections count, too.
func NoFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// Scarce reports whether an error says that something is used up that may be there again: space or files.
func Scarce(err error) bool { return NoSpace(err) || NoFiles(err) }
