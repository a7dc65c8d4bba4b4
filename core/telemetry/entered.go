package telemetry

// Entered names the queues that a message entered. It is never modified: messages with the same route share one, and events refer
// to it for as long as they are stored.
type Entered struct {
	Names []string // the first ones, at most MostEntered
	More  int      // queues beyond these
}

// MostEntered bounds the queues that an [Entered] names: an exchange may have a hundred thousand bindings.
const MostEntered = 16
