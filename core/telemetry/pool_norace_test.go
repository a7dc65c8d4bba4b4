//go:build !race

package telemetry

const lossyPools = false
