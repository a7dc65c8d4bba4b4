//go:build race

package store

// fewer is by what tests divide what they do, because the race detector makes it slow.
const fewer = 4
