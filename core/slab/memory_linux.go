package slab

import (
	"runtime"
	"syscall"
	"time"
)

// mapMemory takes size bytes from the operating system. Pages become resident
// when they are first touched. Running out of address space is out of memory:
// the process cannot go on, as with the Go heap.
func mapMemory(size int) []byte {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		panic("curfew: out of memory: mmap: " + err.Error())
	}
	return b
}

// unmapMemory gives back what mapMemory returned, whole.
func unmapMemory(b []byte) { _ = syscall.Munmap(b) } // it cannot fail for a mapping of ours

// adviseHuge asks for large pages.
func adviseHuge(b []byte) { _ = syscall.Madvise(b, syscall.MADV_HUGEPAGE) } // advice: nothing to do when refused

// releaseMemory gives the pages back and keeps the addresses.
func releaseMemory(b []byte) { _ = syscall.Madvise(b, syscall.MADV_DONTNEED) } // advice: nothing to do when refused

// touchMemory makes the pages resident, and returns the processor's time that
// took; 0 = it was not done.
func touchMemory(b []byte) time.Duration {
	const populate = 23 // MADV_POPULATE_WRITE, from Linux 5.14 on
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	if err := syscall.Madvise(b, populate); err != nil {
		return 0
	}
	return threadTime() - before
}

func threadTime() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	_ = syscall.Getrusage(thread, &u) // it cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
