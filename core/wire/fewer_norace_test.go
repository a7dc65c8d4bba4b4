//go:build !race

package wire

// fewer is 1 where tests do all there is to do.
const fewer = 1
