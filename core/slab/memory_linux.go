package slab

import "syscall"

// mapMemory takes size bytes from the operating system. Pages become resident when they are
// first touched. If the address space is exhausted, the process is out of memory and cannot
// go on, as with the Go heap.
func mapMemory(size int) []byte {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		panic("curfew: out of memory: mmap: " + err.Error())
	}
	return b
}

// unmapMemory returns a whole slab from mapMemory to the system.
func unmapMemory(b []byte) { _ = syscall.Munmap(b) } // cannot fail for our own mapping

// adviseHuge asks for large pages.
func adviseHuge(b []byte) { _ = syscall.Madvise(b, syscall.MADV_HUGEPAGE) } // only advice: a refusal does not matter

// releaseMemory returns the pages to the system and keeps the addresses.
func releaseMemory(b []byte) { _ = syscall.Madvise(b, syscall.MADV_DONTNEED) } // only advice: a refusal does not matter

// populate makes all pages resident at once: a page fault for each would cost half as much again.
func populate(b []byte) {
	const populateWrite = 23              // MADV_POPULATE_WRITE, from Linux 5.14 on
	_ = syscall.Madvise(b, populateWrite) // if this is refused, pages become resident one by one
}
