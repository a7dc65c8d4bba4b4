//go:build race

package crash

// fewer divides how long the nodes of a cluster are in trouble beside all other tests: with the race detector, processors are busy enough.
const fewer = 4
