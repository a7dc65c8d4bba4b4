//go:build linux || darwin

package wasm

import "syscall"

// region is address space that is reserved as a whole and becomes memory where
// it is touched: it never moves, and goes back to the system at once.
type region struct{ all []byte }

func (r *region) reserve(most uint64) {
	if most == 0 {
		return
	}
	all, err := syscall.Mmap(-1, 0, int(most), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err == nil { // resize tells otherwise
		r.all = all
	}
}

// resize returns the first size bytes, which begin as zeros; nil if there are
// not so many.
func (r *region) resize(size uint64) []byte {
	if size > uint64(len(r.all)) {
		return nil
	}
	return r.all[:size]
}

func (r *region) release() {
	if r.all != nil {
		_ = syscall.Munmap(r.all) // fails for what was never mapped only
		r.all = nil
	}
}
