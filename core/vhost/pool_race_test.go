//go:build race

package vhost

// lossyPools is set where sync.Pool drops what it is given at random.
const lossyPools = true
