// Package vfs is the seam between the embedded log engine and the file system:
// one directory of flat files. [Dir] is the real one; crashfs is one in memory
// that can lose power.
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
	// Rename gives a file another name, in place of whatever had that.
	Rename(old, name string) error
	// Remove takes a name away; what has the file open keeps it.
	Remove(name string) error
	// Sync makes names durable: what Open created, and all of Rename and Remove.
	Sync() error
}

// Mode says what a file is opened for.
type Mode uint8

// The modes.
const (
	Read   Mode = iota // to read; it exists
	Write              // to read and write; it exists
	Create             // to read and write; it does not exist yet
	Lock               // as Write, made if missing, and by nobody else at the same time: ErrLocked
)

// Stat describes a file.
type Stat struct {
	Name string
	Size int64
}

// Direct added to a mode says that the file is written from front to back and
// read hardly ever, so that memory is better not spent on a copy of it. It is a
// hint: whatever else holds of a file does so without regard to it.
const Direct Mode = 1 << 7

// File is an open file. ReadAt may be called from many goroutines, the others
// from one at a time.
type File interface {
	io.ReaderAt
	// Writev writes parts one after another, beginning at off. After an error
	// any part of them may be in the file, now or after a crash.
	Writev(off int64, parts [][]byte) error
	// Allocate makes the file size bytes long. What it adds is zeros with a place
	// of their own on the disk, so that writing there needs no space any more and
	// changes nothing but data.
	Allocate(size int64) error
	// Sync makes what was written and allocated durable. After an error nobody
	// knows what is: the file must not be relied on again.
	Sync() error
	// Close gives the file up, and its lock.
	Close() error
}

// ErrLocked is returned for a file that another process, or another handle of
// this one, holds locked.
var ErrLocked = errors.New("locked")

// NoSpace reports whether an error says that the disk is full, or the user's
// share of it.
func NoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
