package hook

// ExpirationChecker is a plugin that reads the expiration property of messages. A
// chain has at most one. Without one the property has no effect: it is passed on
// unread, and [Message.Expiration] is never set.
type ExpirationChecker interface {
	Plugin
	// CheckExpiration returns the time that a publisher gives a message in each queue,
	// in milliseconds from 0; not set means no limit. An error refuses the message: its
	// publisher gets "invalid expiration 'RAW': " and the error's text.
	//
	// The broker asks when properties differ from those of the channel's message
	// before, and again when it restamps queued messages: the same bytes must mean the
	// same, whenever asked. CheckExpiration may be called from many goroutines at once,
	// and must not retain raw.
	CheckExpiration(raw []byte) (Limit, error)
}
