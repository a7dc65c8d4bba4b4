//go:build race

package cluster

// fewer divides the number of games that tests play, because they are slow under the race detector.
const fewer = 10
