package crashfs

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// loss selects which of a file's unsynced changes survive a loss of power.
type loss func(s *FS, changes []write) []write

// losses are the ways in which a disk loses unsynced changes.
var losses = []loss{
	func(*FS, []write) []write { return nil },
	func(_ *FS, all []write) []write { return all },
	func(s *FS, all []write) []write { return all[:s.rng.IntN(len(all)+1)] },
	func(s *FS, all []write) []write { return s.some(all) },
	(*FS).torn,
	(*FS).tornTail,
}

// some picks any subset, in order.
func (s *FS) some(all []write) []write {
	var picked []write
	for _, w := range all {
		if s.rng.IntN(2) == 0 {
			picked = append(picked, w)
		}
	}
	return picked
}

// torn picks any sectors of any writes.
func (s *FS) torn(all []write) []write {
	var picked []write
	for _, w := range all {
		picked = append(picked, s.some(w.sectors())...)
	}
	return picked
}

// tornTail keeps all but the last write, and of that the first sectors.
func (s *FS) tornTail(all []write) []write {
	if len(all) == 0 {
		return nil
	}
	last := all[len(all)-1].sectors()
	return append(all[:len(all)-1:len(all)-1], last[:s.rng.IntN(len(last)+1)]...)
}

// LosePower returns the file system that a machine finds after a loss of power: everything that was synced, and a random part of
// the rest. Nothing works on the old one any more.
func (s *FS) LosePower() *FS {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dark = true
	how := losses[s.rng.IntN(len(losses))]
	names := maps.Clone(s.disk)
	keepAll, keepNone := s.rng.IntN(3) == 0, s.rng.IntN(3) == 0
	for _, m := range s.moves {
		if keepAll || !keepNone && s.rng.IntN(2) == 0 {
			m.apply(names)
		}
	}
	found := s.successor()
	files := map[*file]*file{}
	for _, name := range slices.Sorted(maps.Keys(names)) { // in order, so that runs repeat exactly
		f := names[name]
		if files[f] == nil {
			data := bytes.Clone(f.disk)
			for _, w := range how(s, f.pending) {
				data = w.apply(data)
			}
			files[f] = &file{data: data, disk: bytes.Clone(data), allocated: f.allocated}
		}
		found.names[name], found.disk[name] = files[f], files[f]
	}
	return found
}

// Kill returns the file system that the next process finds after this one was killed: everything that was written, no more durable
// than before, and without locks. Nothing works on the old one any more.
func (s *FS) Kill() *FS {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dark = true
	found := s.successor()
	files := map[*file]*file{}
	alive := func(f *file) *file {
		if f == nil {
			return nil
		}
		if files[f] == nil {
			files[f] = &file{data: bytes.Clone(f.data), disk: bytes.Clone(f.disk), pending: slices.Clip(f.pending), allocated: f.allocated}
		}
		return files[f]
	}
	for name, f := range s.names {
		found.names[name] = alive(f)
	}
	for name, f := range s.disk {
		found.disk[name] = alive(f)
	}
	for _, m := range s.moves {
		found.moves = append(found.moves, move{old: m.old, to: m.to, f: alive(m.f)})
	}
	return found
}

func (s *FS) successor() *FS {
	next := New(s.rng.Uint64())
	next.space = s.space
	return next
}

// Flip inverts a bit of a file, on the disk and in the cache.
func (s *FS) Flip(name string, off int64, bit uint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.names[name]
	if f == nil || off >= int64(len(f.data)) {
		panic(fmt.Sprintf("crashfs: no byte %d in file %q", off, name))
	}
	f.data[off] ^= 1 << bit
	if off < int64(len(f.disk)) {
		f.disk[off] ^= 1 << bit
	}
}
