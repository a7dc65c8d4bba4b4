//go:build !linux

package wire

import "time"

// metronome is not available: on these systems the Go runtime cannot wait for a precise timer. Connections are not polled.
type metronome struct{}

func newMetronome() (*metronome, error)     { return nil, errNoMetronome }
func (*metronome) tick(time.Duration) error { return nil }
func (*metronome) wait() error              { return nil }
func (*metronome) close()                   {}

func setLowWater(int, int) {}
