//go:build !wrongclock

package clock

const wrong = 0
