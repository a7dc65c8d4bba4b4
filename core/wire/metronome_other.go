//go:build !linux

package wire

import "time"

// metronome stands for a timer of the system that is precise enough. There is none that the runtime can wait for: connections
// are read as messages come.
type metronome struct{}

func newMetronome() (*metronome, error)     { return nil, errNoMetronome }
func (*metronome) tick(time.Duration) error { return nil }
func (*metronome) wait() error              { return nil }
func (*metronome) close()                   {}

func setLowWater(int, int) {}
