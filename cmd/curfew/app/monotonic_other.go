//go:build !linux

package app

import "time"

// monotonic is for systemd, which there is on Linux only.
func monotonic() time.Duration { return 0 }
