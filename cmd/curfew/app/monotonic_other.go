//go:build !linux

package app

import "time"

// monotonic is only needed for systemd, which exists only on Linux.
func monotonic() time.Duration { return 0 }
