//go:build !linux

package vfs

import "os"

func (f osFile) Writev(off int64, parts [][]byte) error { return f.writeEach(off, parts) }

// reserve does nothing: the following write of zeros finds the space.
func (osFile) reserve(int64) error { return nil }

// openDirect returns f without direct transfers.
func openDirect(f *os.File, _ int) File { return osFile{f} }
