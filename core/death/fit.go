package death

import (
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
)

// A header frame cannot be split, and a client closes its connection if a frame exceeds the negotiated frame-max. A message's record of its
// deaths must therefore be bounded.

// maxHistory bounds x-death without its newest entry, in bytes. That is enough for 30 entries with the longest names, and some 200 with
// common ones. The oldest entries are dropped.
const maxHistory = 32 << 10

// headerDeliveryCount is added by a queue when it redelivers a message.
const headerDeliveryCount = "x-delivery-count"

// droppable are headers written by the broker, in the order in which Fit drops them.
var droppable = [...]string{
	headerDeaths,
	headerFirstExchange, headerFirstQueue, headerFirstReason, headerLastExchange, headerLastQueue, headerLastReason,
	headerDeliveryCount, headerRedriven,
}

// Fit shortens a message's properties to limit bytes, by removing headers that the broker wrote: first the oldest entries of x-death,
// then all of x-death, then the headers about the first and the last death, then the delivery count, then those of redrives. If the
// publisher's own properties are too long, the result is, too.
func Fit(props []byte, limit int) []byte {
	idx, err := amqp.ScanProps(props)
	if err != nil || len(props) <= limit {
		return props
	}
	headers := idx.Headers(props)
	for _, n := range [...]int{0, 1, 7, 8, 9} {
		kept := dropHeaders(headers, droppable[:n], len(props)-limit)
		if kept != nil && len(props)-len(headers)+len(kept) <= limit {
			return amqp.RewriteProps(nil, props, idx, amqp.PropEdit{Headers: kept})
		}
	}
	return props
}

// dropHeaders returns headers without those in drop. If drop is empty, it shortens x-death by at least over bytes instead. It returns
// nil if that is impossible.
func dropHeaders(headers amqp.RawTable, drop []string, over int) amqp.RawTable {
	kept := make(amqp.RawTable, 0, len(headers))
	for f := range headers.All() {
		switch {
		case len(drop) == 0 && string(f.Key) == headerDeaths && f.Type == 'A':
			if f.Value = newestEntries(f.Value, over); f.Value == nil {
				return nil
			}
		case slices.Contains(drop, string(f.Key)):
			continue
		}
		kept = f.Append(kept)
	}
	return kept
}

// newestEntries removes at least over bytes of whole entries from the end of an x-death array; nil if no entry remains.
func newestEntries(array []byte, over int) []byte {
	most, kept := len(array)-over, 0
	for {
		_, rest, ok := splitTable(array[kept:])
		if !ok || len(array)-len(rest) > most {
			break
		}
		kept = len(array) - len(rest)
	}
	if kept == 0 {
		return nil
	}
	return array[:kept]
}
