package telemetry

// Entered names the queues that a message entered. It is never modified: messages that go the same way share one, and events refer
// to it for as long as they are remembered.
type Entered struct {
	Names []string // the first ones, at most MostEntered
	More  int      // queues beyond these
}

// MostEntered is how many queues an [Entered] names: an exchange may have a hundred thousand bindings.
const MostEntered = 16
