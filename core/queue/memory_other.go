//go:build !linux

package queue

// Elsewhere than on Linux slabs come from the Go heap.

func mapMemory(size int) []byte { return make([]byte, size) }

func unmapMemory([]byte) {}

func releaseMemory([]byte) {}
