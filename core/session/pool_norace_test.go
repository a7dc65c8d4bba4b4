//go:build !race

package session

const lossyPools = false
