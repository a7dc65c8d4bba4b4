package death

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// History lists the deaths of one message, most recent first.
type History struct {
	queue, reason string // of the most recent
	earlier       []earlier
}

// earlier is a death that x-death already contains.
type earlier struct {
	queue, reason []byte
	table         amqp.RawTable
}

func (h *History) reset(queue, reason string) {
	h.queue, h.reason = queue, reason
	h.earlier = h.earlier[:0]
}

// read parses an x-death array. It reports whether the array has the form written by the broker, and at least one entry.
func (h *History) read(array []byte) bool {
	for len(array) > 0 {
		table, rest, ok := splitTable(array)
		if !ok {
			h.earlier = h.earlier[:0]
			return false
		}
		queue, _ := table.LookupBytes(fieldQueue)
		reason, _ := table.LookupBytes(fieldReason)
		h.earlier = append(h.earlier, earlier{queue, reason, table})
		array = rest
	}
	return len(h.earlier) > 0
}

// splitTable splits off the first element of an array, which must be a table.
func splitTable(array []byte) (table amqp.RawTable, rest []byte, ok bool) {
	if len(array) < 5 || array[0] != 'F' {
		return nil, nil, false
	}
	size := binary.BigEndian.Uint32(array[1:])
	array = array[5:]
	if uint64(size) > uint64(len(array)) {
		return nil, nil, false
	}
	return amqp.RawTable(array[:size]), array[size:], true
}

// remove removes and returns the entry for a queue and a reason; nil = there is none.
func (h *History) remove(queue, reason string) amqp.RawTable {
	for i, e := range h.earlier {
		if string(e.queue) == queue && string(e.reason) == reason {
			h.earlier = slices.Delete(h.earlier, i, i+1)
			return e.table
		}
	}
	return nil
}

var rejected = hook.ReasonRejected.String()

// Cycle reports whether the message would close a cycle if it went to this queue: it died there before, and no consumer has rejected
// it since, or there. Such a message, moved only by timeouts and limits, would circulate forever.
func (h *History) Cycle(queue string) bool {
	if h.reason == rejected {
		return false
	}
	if h.queue == queue {
		return true
	}
	for _, e := range h.earlier {
		if string(e.reason) == rejected {
			return false
		}
		if string(e.queue) == queue {
			return true
		}
	}
	return false
}

// Warning returns the log line for a message that closes a cycle at this queue. See [Warnings].
func (h *History) Warning(queue string) string {
	var b strings.Builder
	b.WriteString("Message dropped because the following list of queues (ordered by death recency) " +
		"contains a dead letter cycle without reason 'rejected'. This list will not be logged again: [")
	fmt.Fprintf(&b, "<<%q>>,<<%q>>", queue, h.queue)
	for _, e := range h.earlier {
		fmt.Fprintf(&b, ",<<%q>>", e.queue)
	}
	b.WriteByte(']')
	return b.String()
}

// Place is a place where a message died: an entry of x-death. Its slices alias the headers.
type Place struct {
	Queue, Reason []byte
	Exchange, Key []byte // exchange and key with which it had been published to the queue
}

// Latest returns the place of a message's last death; false if the headers do not contain it. The headers must be the broker's own.
func Latest(headers amqp.RawTable) (p Place, ok bool) {
	deaths, ok := entriesOf(headers)
	if !ok {
		return Place{}, false
	}
	table, _, ok := splitTable(deaths)
	return placeOf(table), ok
}

// First returns the place of a message's first death. It returns false if the headers do not contain it, or if x-death has
// become too long since to keep that entry. The headers must be the broker's own.
func First(headers amqp.RawTable) (p Place, ok bool) {
	deaths, ok := entriesOf(headers)
	queue, known := headers.LookupBytes(headerFirstQueue)
	reason, _ := headers.LookupBytes(headerFirstReason)
	if !ok || !known {
		return Place{}, false
	}
	for len(deaths) > 0 {
		table, rest, ok := splitTable(deaths)
		if !ok {
			break
		}
		if p = placeOf(table); string(p.Queue) == string(queue) && string(p.Reason) == string(reason) {
			return p, true
		}
		deaths = rest
	}
	return Place{}, false
}

func entriesOf(headers amqp.RawTable) ([]byte, bool) {
	f, ok := headers.LookupRaw(headerDeaths)
	return f.Value, ok && f.Type == 'A' && len(f.Value) > 0
}

// placeOf reads an entry of x-death. The first of several routing keys is the message's own.
func placeOf(entry amqp.RawTable) (p Place) {
	p.Queue, _ = entry.LookupBytes(fieldQueue)
	p.Reason, _ = entry.LookupBytes(fieldReason)
	p.Exchange, _ = entry.LookupBytes(fieldExchange)
	keys, ok := entry.LookupRaw(fieldKeys)
	if ok && keys.Type == 'A' && len(keys.Value) >= longHeader && keys.Value[0] == 'S' {
		p.Key = longText(keys.Value)
	}
	return p
}

// longHeader is the size of a long string's type and length, as an element of an array.
const longHeader = 5

// longText returns the first element of an array; it must be a long string.
func longText(array []byte) []byte {
	size := int(array[1])<<24 | int(array[2])<<16 | int(array[3])<<8 | int(array[4])
	return array[longHeader:min(longHeader+size, len(array))]
}

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

// Warnings remembers which warnings were logged, so that each is logged once. At a limit it forgets all of them, so that a cycle through
// ever new queues does not take ever more memory. It is safe for concurrent use; the zero value is ready.
type Warnings struct {
	mu   sync.Mutex // guards seen
	seen map[uint64]struct{}
	seed maphash.Seed
}

const maxWarnings = 4096

// First reports whether this history, cut short at this queue, is new, so that its [History.Warning] must be logged. It is
// cheap enough to be called for every message in a cycle.
func (w *Warnings) First(h *History, queue string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == nil {
		w.seen, w.seed = map[uint64]struct{}{}, maphash.MakeSeed()
	}
	sum := h.sum(w.seed, queue)
	if _, logged := w.seen[sum]; logged {
		return false
	}
	if len(w.seen) == maxWarnings {
		clear(w.seen)
	}
	w.seen[sum] = struct{}{}
	return true
}

// sum hashes the list of queues in the warning.
func (h *History) sum(seed maphash.Seed, queue string) uint64 {
	var m maphash.Hash
	m.SetSeed(seed)
	for _, name := range [...]string{queue, h.queue} {
		m.WriteString(name)
		m.WriteByte(0)
	}
	for _, e := range h.earlier {
		m.Write(e.queue)
		m.WriteByte(0)
	}
	return m.Sum64()
}
