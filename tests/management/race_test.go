//go:build race

package management

// underRace tells that the race detector is looking, which has nothing to see in a RabbitMQ.
const underRace = true
