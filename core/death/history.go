package death

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

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
