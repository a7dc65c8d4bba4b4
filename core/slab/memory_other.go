//go:build !linux

package slab

// On systems other than Linux, slabs come from the Go heap.

func mapMemory(size int) []byte { return make([]byte, size) }

func unmapMemory([]byte) {}

func adviseHuge([]byte) {}

func releaseMemory([]byte) {}

func populate([]byte) {}
