//go:build race

package session

// lossyPools is set where sync.Pool drops values at random.
const lossyPools = true
