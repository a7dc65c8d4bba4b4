//go:build !race

package route

const lossyPools = false
