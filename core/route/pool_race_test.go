//go:build race

package route

// lossyPools says that sync.Pool drops random items, as it does under the race detector.
const lossyPools = true
