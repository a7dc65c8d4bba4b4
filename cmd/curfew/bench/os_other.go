//go:build !linux

package bench

import (
	"os"
	"time"
)

func newPacer() (pacer, error) { return naps{}, nil }

func ownCPU() time.Duration { return 0 }

func syncData(f *os.File) error { return f.Sync() }
