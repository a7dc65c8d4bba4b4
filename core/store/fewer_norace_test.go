//go:build !race

package store

// fewer is 1 where tests do all there is to do.
const fewer = 1
