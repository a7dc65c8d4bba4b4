//go:build race

package seg

// fewer divides the work of tests in which a single goroutine does everything, where the race detector finds nothing. .ci/run test does all
// of that work.
const fewer = 3
