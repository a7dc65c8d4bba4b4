//go:build linux || darwin

package wasm

import "syscall"

// region is reserved address space, which becomes memory where it is touched. It never moves, and is returned to the system at
// once.
type region struct{ all []byte }

func (r *region) reserve(most uint64) {
	if most == 0 {
		return
	}
	all, err := syscall.Mmap(-1, 0, int(most), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err == nil { // otherwise resize fails
		r.all = all
	}
}

// resize returns the first size bytes, initially zero; nil if the region is smaller.
func (r *region) resize(size uint64) []byte {
	if size > uint64(len(r.all)) {
		return nil
	}
	return r.all[:size]
}

func (r *region) release() {
	if r.all != nil {
		_ = syscall.Munmap(r.all) // fails only for memory that is not mapped
		r.all = nil
	}
}
