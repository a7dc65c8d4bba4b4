package hook

// ExpirationChecker is a plugin that reads the expiration property of messages. A chain has at most one. Without one the property has no
// effect: it is passed on unread, and [Message.Expiration] is never set.
type ExpirationChecker interface {
	Plugin
	// CheckExpiration returns how long a publisher lets a message stay in each queue, in milliseconds from 0; not set means no limit. An error
	// refuses the message: its publisher gets "invalid expiration 'RAW': " and the error's text.
	//
	// The broker calls CheckExpiration when the properties differ from those of the channel's previous message, and again when it restamps queued
	// messages: the result must depend only on the bytes. CheckExpiration may be called from many goroutines at once, and must not retain raw.
	CheckExpiration(raw []byte) (Limit, error)
}
