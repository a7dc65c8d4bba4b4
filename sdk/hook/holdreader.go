package hook

// HoldReader is a plugin that reads holds from headers: until when publishers want their messages held. A chain has at most one. The broker
// holds the message once in each queue to which it is routed, but not as a dead letter or after a redrive.
type HoldReader interface {
	Plugin
	// HoldHeaders returns the names of the headers that the plugin reads: 1 to 8. No names mean that it reads nothing. It is called once, when the
	// broker starts.
	HoldHeaders() []string
	// ReadHold is called for a message that has at least one of the headers. values are in the order of HoldHeaders, with the types of [Args],
	// except that a timestamp is a [time.Time]; nil means a header without a value, or an absent header. The text of its error becomes the text of the
	// publisher's PRECONDITION_FAILED.
	//
	// The broker calls ReadHold when the properties differ from those of the channel's previous message, so the result must depend only on the
	// headers: now is for checking Wait.Until. ReadHold may be called from many goroutines at once, and must not retain values.
	ReadHold(now Instant, values []any) (Wait, error)
}

// Wait is how long a message is held. The zero value does not hold it.
type Wait struct {
	After int64   // milliseconds after it enters a queue
	Until Instant // the later one applies
}
