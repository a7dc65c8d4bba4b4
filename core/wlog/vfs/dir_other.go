//go:build !linux

package vfs

import "os"

// Writev implements [File].
func (f osFile) Writev(off int64, parts [][]byte) error {
	for _, p := range parts {
		if _, err := f.WriteAt(p, off); err != nil {
			return err
		}
		off += int64(len(p))
	}
	return nil
}

// reserve leaves finding blocks to the zeros that are written next.
func (osFile) reserve(int64) error { return nil }

// openDirect leaves f as it is: there are no direct transfers.
func openDirect(f *os.File, _ int) File { return osFile{f} }
