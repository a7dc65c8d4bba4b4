//go:build !race

package management

const underRace = false
