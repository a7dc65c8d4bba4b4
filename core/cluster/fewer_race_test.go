//go:build race

package cluster

// fewer divides how many games tests play: they are slow under the race detector.
const fewer = 10
