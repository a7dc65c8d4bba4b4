package hook

// HoldReader is a plugin that reads, from headers, until when publishers want their
// messages held. A chain has at most one. The broker holds the message in each queue that
// it is routed to, and does so once: not as a dead letter, nor after it was redriven.
type HoldReader interface {
	Plugin
	// HoldHeaders returns the names of the headers that the plugin reads: 1 to 8. None
	// means that it reads nothing. It is called once, when the broker starts.
	HoldHeaders() []string
	// ReadHold is asked about a message with one of the headers at least. values are in
	// the order of HoldHeaders, and as those of [Args], but a timestamp is a [time.Time];
	// nil is a header without a value, or one that the message does not have. The text of
	// its error is that of the publisher's PRECONDITION_FAILED.
	//
	// The broker asks when properties differ from those of the channel's message before,
	// so that the same headers must mean the same: now is for checking Wait.Until.
	// ReadHold may be called from many goroutines at once, and must not retain values.
	ReadHold(now Instant, values []any) (Wait, error)
}

// Wait is how long a message is held. The zero value does not hold it.
type Wait struct {
	After int64   // milliseconds after it enters a queue
	Until Instant // the later one counts
}
