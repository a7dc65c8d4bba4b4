//go:build !linux

package bench

import (
	"os"
	"syscall"
	"time"
)

func newPacer() (pacer, error) { return naps{}, nil }

// naps sleeps with the runtime's timers, which may be a millisecond late.
type naps struct{}

func (naps) sleep(d time.Duration) error { time.Sleep(d); return nil }
func (naps) Close() error                { return nil }

func ownCPU() time.Duration { return 0 }

func ownSession() *syscall.SysProcAttr { return nil }

func syncData(f *os.File) error { return f.Sync() }
