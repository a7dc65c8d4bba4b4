package death

import (
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
)

// A header frame cannot be divided, so there is an end to what a message can say of its deaths: a client that has
// negotiated a frame-max takes a larger one for an error of the broker's, and hangs up.

// maxHistory bounds the entries of x-death, in bytes, but for the latest: there are 30 with the longest names there can be,
// and some 200 with common ones. The oldest go first.
const maxHistory = 32 << 10

// headerDeliveryCount is what a queue adds to a message that it hands out again.
const headerDeliveryCount = "x-delivery-count"

// Fit returns the properties of a message without as much of what the broker wrote into its headers as makes them fit limit
// bytes: the oldest entries of x-death, then all of that, then the headers that name the first death and the last. A message
// that its publisher made larger stays as large as that.
func Fit(props []byte, limit int) []byte {
	idx, err := amqp.ScanProps(props)
	if err != nil || len(props) <= limit {
		return props
	}
	headers := idx.Headers(props)
	for _, without := range [...][]string{
		nil,
		{headerDeaths},
		{headerDeaths, headerFirstExchange, headerFirstQueue, headerFirstReason, headerLastExchange, headerLastQueue, headerLastReason},
		{
			headerDeaths, headerFirstExchange, headerFirstQueue, headerFirstReason, headerLastExchange, headerLastQueue, headerLastReason,
			headerDeliveryCount,
		},
	} {
		kept := cut(headers, without, len(props)-limit)
		if kept != nil && len(props)-len(headers)+len(kept) <= limit {
			return amqp.RewriteProps(nil, props, idx, amqp.PropEdit{Headers: kept})
		}
	}
	return props
}

// cut returns headers without some of them, or, when those are none, with an x-death shorter by over bytes at least; nil if
// that is not possible.
func cut(headers amqp.RawTable, without []string, over int) amqp.RawTable {
	kept := make(amqp.RawTable, 0, len(headers))
	for f := range headers.All() {
		switch {
		case len(without) == 0 && string(f.Key) == headerDeaths && f.Type == 'A':
			if f.Value = latest(f.Value, over); f.Value == nil {
				return nil
			}
		case slices.Contains(without, string(f.Key)):
			continue
		}
		kept = f.Append(kept)
	}
	return kept
}

// latest returns the first entries of an x-death array without over bytes at the end at least; nil if none would be left.
func latest(array []byte, over int) []byte {
	most, kept := len(array)-over, 0
	for {
		_, rest, ok := cutTable(array[kept:])
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
