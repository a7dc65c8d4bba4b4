//go:build !linux

package broker

import (
	"runtime"

	"github.com/curfewmq/curfew/core/mgmt"
)

// describeProcess returns what is known of this process everywhere.
func describeProcess(string) mgmt.Machine { return mgmt.Machine{Processors: runtime.NumCPU()} }

// filesLimit returns how many file descriptors the process may have: unknown.
func filesLimit() int { return 0 }

// releaseProgram would give memory back: the system is not asked to.
func releaseProgram() {}
