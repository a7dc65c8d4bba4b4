//go:build !race

package quorum

// fewer is 1 without the race detector: tests do all of their work.
const fewer = 1
