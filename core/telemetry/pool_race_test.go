//go:build race

package telemetry

// lossyPools is set where sync.Pool drops values at random.
const lossyPools = true
