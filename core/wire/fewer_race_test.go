//go:build race

package wire

// fewer divides how much tests do in which one goroutine plays by itself: the race detector has nothing to see there. All of it is
// done by .ci/run test.
const fewer = 3
