// Package death records in a message's headers that it was dead-lettered, and finds cycles in the record. It transforms bytes;
// it routes nothing and reads no clock.
//
// The header x-death is an array of tables, most recent death first, with one table for each queue and reason; x-first-death-*
// and x-last-death-* describe the two ends of that history [RabbitMQ: dlx.html#effects]. Entries written by a client do not
// count: the caller must know from elsewhere whether x-death is the broker's own.
package death

import "github.com/curfewmq/curfew/sdk/hook"

// Death describes how messages left a queue: the facts that consecutive messages have in common.
type Death struct {
	Queue    string
	Reason   hook.Reason
	Exchange []byte   // exchange that they were published to
	Keys     [][]byte // keys that they were published with, from [Keys]
	At       hook.Instant
}

// The headers, in order.
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
	fieldExpiration = "original-expiration" // if the message had one
	fieldCount      = "count"
	fieldReason     = "reason"
	fieldQueue      = "queue"
	fieldTime       = "time"
	fieldExchange   = "exchange"
	fieldKeys       = "routing-keys"
)
