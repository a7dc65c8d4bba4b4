//go:build !linux

package app

// relaxTimers has an effect only on Linux.
func relaxTimers() {}
