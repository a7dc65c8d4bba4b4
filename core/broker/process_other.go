//go:build !linux

package broker

import (
	"runtime"

	"github.com/curfewmq/curfew/core/mgmt"
)

// describeProcess returns the facts that every system offers.
func describeProcess(string) mgmt.Machine { return mgmt.Machine{Processors: runtime.NumCPU()} }

// filesLimit returns how many file descriptors the process may have: unknown.
func filesLimit() int { return 0 }

// releaseProgram does nothing on this system.
func releaseProgram() {}
