//go:build !linux

package queue

import (
	"errors"
	"os"
	"time"
)

// Elsewhere than on Linux slabs come from the Go heap.

func mapMemory(size int) []byte { return make([]byte, size) }

func unmapMemory([]byte) {}

func adviseHuge([]byte) {}

func releaseMemory([]byte) {}

func touchMemory([]byte) time.Duration { return 0 }

func openDirect(f *os.File) *os.File { return f }

func punchHole(*os.File, int64, int64) error { return errors.ErrUnsupported }
