//go:build race

package build

// race says that the race detector is on.
const race = true
