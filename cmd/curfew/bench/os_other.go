//go:build !linux

package bench

import "time"

func newPacer() (pacer, error) { return naps{}, nil }

func ownCPU() time.Duration { return 0 }
