//go:build race

package policy

// underRace reports that the race detector slows down the compilation of modules.
const underRace = true
