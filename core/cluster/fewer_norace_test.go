//go:build !race

package cluster

// fewer is 1 without the race detector: tests do all of their work.
const fewer = 1
