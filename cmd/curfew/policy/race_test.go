//go:build race

package policy

// underRace tells that the race detector slows the compiler of modules down.
const underRace = true
