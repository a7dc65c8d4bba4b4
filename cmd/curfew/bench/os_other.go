//go:build !linux

package bench

import (
	"os"
	"syscall"
	"time"
)

func newPacer() (pacer, error) { return naps{}, nil }

func ownCPU() time.Duration { return 0 }

func ownSession() *syscall.SysProcAttr { return nil }

func syncData(f *os.File) error { return f.Sync() }
