package slab

import "syscall"

// mapMemory takes size bytes from the operating system. Pages become resident when
// they are first touched. Running out of address space is out of memory: the process
// cannot go on, as with the Go heap.
func mapMemory(size int) []byte {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		panic("curfew: out of memory: mmap: " + err.Error())
	}
	return b
}

// unmapMemory returns what mapMemory returned, whole.
func unmapMemory(b []byte) { _ = syscall.Munmap(b) } // it cannot fail for a mapping of ours

// adviseHuge asks for large pages.
func adviseHuge(b []byte) { _ = syscall.Madvise(b, syscall.MADV_HUGEPAGE) } // advice: nothing to do when refused

// releaseMemory returns the pages to the system and keeps the addresses.
func releaseMemory(b []byte) { _ = syscall.Madvise(b, syscall.MADV_DONTNEED) } // advice: nothing to do when refused

// populate makes the pages resident, all at once: a fault for each costs half as much again.
func populate(b []byte) {
	const populateWrite = 23              // MADV_POPULATE_WRITE, from Linux 5.14 on
	_ = syscall.Madvise(b, populateWrite) // where it is refused, pages become resident one by one
}
