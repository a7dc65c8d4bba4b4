//go:build !race

package crash

// fewer is 1 where a cluster is in trouble for as long as it is by default.
const fewer = 1
