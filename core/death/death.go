// Package death records in a message's headers that it was dead-lettered, and
// finds cycles in what was recorded. Bytes in, bytes out: it routes nothing and
// reads no clock.
//
// A message carries its deaths in the header x-death, an array of tables, the
// most recent first, one for each queue and reason; x-first-death-* and
// x-last-death-* name the ends of that history [RabbitMQ: dlx.html#effects].
// What a client puts there counts for nothing: whether x-death is the broker's
// own has to be known from elsewhere.
package death

import "github.com/curfewmq/curfew/sdk/hook"

// Death is how messages left a queue: all that is the same for a run of them.
type Death struct {
	Queue    string
	Reason   hook.Reason
	Exchange []byte   // the exchange they were published to
	Keys     [][]byte // the keys they were published with, as [Keys] returns them
	At       hook.Instant
}

// The headers, sorted.
const (
	headerDeaths        = "x-death"
	headerFirstExchange = "x-first-death-exchange"
	headerFirstQueue    = "x-first-death-queue"
	headerFirstReason   = "x-first-death-reason"
	headerLastExchange  = "x-last-death-exchange"
	headerLastQueue     = "x-last-death-queue"
	headerLastReason    = "x-last-death-reason"
)

// The fields of an entry of x-death, in their order.
const (
	fieldExpiration = "original-expiration" // only if the message had one
	fieldCount      = "count"
	fieldReason     = "reason"
	fieldQueue      = "queue"
	fieldTime       = "time"
	fieldExchange   = "exchange"
	fieldKeys       = "routing-keys"
)
