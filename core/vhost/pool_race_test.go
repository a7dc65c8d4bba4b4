//go:build race

package vhost

// lossyPools is set where sync.Pool drops items at random.
const lossyPools = true
