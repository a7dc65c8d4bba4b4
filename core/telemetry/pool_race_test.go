//go:build race

package telemetry

// lossyPools is set where sync.Pool drops what it is given at random.
const lossyPools = true
