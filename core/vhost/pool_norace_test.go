//go:build !race

package vhost

const lossyPools = false
