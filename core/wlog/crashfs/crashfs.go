// Package crashfs is a [vfs.FS] in memory for tests. It loses power, fills up and fails on command.
//
// Reads see writes at once, as from an operating system's cache. On the simulated disk writes are only after a Sync.
// [FS.LosePower] returns what a machine finds there afterwards: any subset of the unsynced writes, in pieces of a sector. A sector
// is written whole or not at all.
package crashfs

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// Sector is how many bytes the disk writes at a time.
const Sector = 512

// FS is the file system. Make one with [New].
type FS struct {
	mu     sync.Mutex // guards all of it, files included
	rng    *rand.Rand
	names  map[string]*file // as processes see them
	disk   map[string]*file // as they would be found after losing power
	moves  []move           // changes to names that were not synced
	locked map[string]bool
	space  int64 // bytes left for Allocate
	fault  func(Op) error
	count  [opKinds]int
	dark   bool // it has lost power: nothing works any more
}

var (
	_ vfs.FS       = (*FS)(nil)
	_ vfs.Spacious = (*FS)(nil)
)

// New returns an empty file system. Everything random follows from the seed.
func New(seed uint64) *FS {
	return &FS{
		rng:    rand.New(rand.NewPCG(seed, 0)),
		names:  map[string]*file{},
		disk:   map[string]*file{},
		locked: map[string]bool{},
		space:  1 << 60,
	}
}

// move is a change of names: the name to is now that of f, and the name old is free. Either may be empty.
type move struct {
	old, to string
	f       *file
}

func (m move) apply(names map[string]*file) {
	if m.old != "" {
		delete(names, m.old)
	}
	if m.to != "" {
		names[m.to] = m.f
	}
}

// Open implements [vfs.FS].
func (s *FS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mode &^= vfs.Direct
	f := s.names[name]
	switch {
	case mode == vfs.Create && f != nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case mode == vfs.Lock && s.locked[name]:
		return nil, &fs.PathError{Op: "lock", Path: name, Err: vfs.ErrLocked}
	case f == nil && (mode == vfs.Read || mode == vfs.Write):
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if f == nil {
		if err := s.op(OpCreate, name); err != nil {
			return nil, err
		}
		f = &file{}
		s.move(move{to: name, f: f})
	}
	if mode == vfs.Lock {
		s.locked[name] = true
	}
	return &handle{fs: s, f: f, name: name, mode: mode}, nil
}

func (s *FS) move(m move) {
	m.apply(s.names)
	s.moves = append(s.moves, m)
}

// List implements [vfs.FS].
func (s *FS) List() ([]vfs.Stat, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.op(OpRead, ""); err != nil {
		return nil, err
	}
	var files []vfs.Stat
	for name, f := range s.names {
		files = append(files, vfs.Stat{Name: name, Size: int64(len(f.data))})
	}
	slices.SortFunc(files, func(a, b vfs.Stat) int { return strings.Compare(a.Name, b.Name) })
	return files, nil
}

// Rename implements [vfs.FS].
func (s *FS) Rename(old, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.names[old]
	if f == nil {
		return &fs.PathError{Op: "rename", Path: old, Err: fs.ErrNotExist}
	}
	if err := s.op(OpRename, old); err != nil {
		return err
	}
	s.drop(s.names[name])
	s.move(move{old: old, to: name, f: f})
	return nil
}

// Remove implements [vfs.FS].
func (s *FS) Remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.names[name]
	if f == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	if err := s.op(OpRemove, name); err != nil {
		return err
	}
	s.drop(f)
	s.move(move{old: name})
	return nil
}

// drop frees the space of a file that lost its name.
func (s *FS) drop(f *file) {
	if f != nil {
		s.space += f.allocated
		f.allocated = 0
	}
}

// Sync implements [vfs.FS]. If it fails, some of the changes are on the disk. Unlike data, the others are written by the next Sync.
func (s *FS) Sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.op(OpSyncDir, "")
	if s.dark {
		return err // LosePower decides about the unsynced changes
	}
	for _, m := range s.moves {
		if err == nil || s.rng.IntN(2) == 0 {
			m.apply(s.disk)
		}
	}
	if err == nil {
		s.moves = nil
	}
	return err
}

// SetSpace sets how many bytes Allocate can still allocate.
func (s *FS) SetSpace(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.space = bytes
}

// Space implements [vfs.Spacious].
func (s *FS) Space() (vfs.Space, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dark {
		return vfs.Space{}, errDark
	}
	total := s.space
	for _, f := range s.names {
		total += f.allocated
	}
	return vfs.Space{Path: "crashfs", Free: s.space, Total: total}, nil
}

// take allocates space to a file.
func (s *FS) take(f *file, size int64) error {
	if size > s.space {
		return fmt.Errorf("%d bytes of which %d are left: %w", size, s.space, syscall.ENOSPC)
	}
	s.space -= size
	f.allocated += size
	return nil
}
