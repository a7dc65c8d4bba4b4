package queue

import (
	"encoding/binary"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// A record is a message's bytes as its queue holds them, in a memory segment:
//
//	 0        4       5     5+e          6+e            p           p+len
//	+--------+-------+-----+--------+---+--------------+-----------+------+
//	| age    | e     | exchange     | k | routing key  | props len | props| body
//	| u32    | u8    |     |        |u8 |              | uvarint   |      |
//	+--------+-------+-----+--------+---+--------------+-----------+------+
//
// age is when the message entered the queue, in milliseconds after the segment was
// begun. Strategy data comes before it: 8 bytes with the slot flag hasState, and 8 with
// hasDigest. With hasBCC the blind-copy keys follow the routing key: a count and, for
// each, length and key. These numbers are uvarints, because headers can name keys that
// are longer than a routing key may be. The body is the rest.
//
// Messages in a row often have the same properties: thousands that expired in one
// second have the same x-death header. With the slot flag alike, a u32 stands for the
// length and the properties: the offset of those of an earlier record in the segment.
// The slot's length is still that of the whole record, as it is journalled.

// record is a decoded record. Its slices alias the segment.
type record struct {
	exchange, key []byte
	bcc           []byte // count and keys as stored; nil = none
	props, body   []byte
	enqueued      hook.Instant
	strategyData
}

// strategyData is the data that a strategy stores with a message: its own state, and the
// digest of the policy that set the deadline. See package guest.
type strategyData struct {
	state  int64
	digest uint64 // or undecidedDigest
}

// undecidedDigest is the digest of a message about which the strategy could not decide
// when it entered. It is stored, so a restart asks the strategy again.
const undecidedDigest = 1<<64 - 1

func (m strategyData) isUndecided() bool { return m.digest == undecidedDigest }

// setBy returns the digest of the policy that set the deadline; 0 means none.
func (m strategyData) setBy() uint64 {
	if m.isUndecided() {
		return 0
	}
	return m.digest
}

// hasStrategyData are the flags for strategy data: each stands for 8 bytes.
const hasStrategyData = hasState | hasDigest

// strategyDataOf returns the data of a message that enters, or is restamped.
func strategyDataOf(v *hook.Verdict) strategyData {
	m := strategyData{v.State, guest.Digest(v)}
	if v.Again && m.digest == 0 {
		m.digest = undecidedDigest
	}
	return m
}

// after returns the data of a message that hooks have kept later on. was is the old
// deadline: an undecided message stays undecided if the hooks leave that in force.
func (m strategyData) after(v *hook.Verdict, was hook.Instant) strategyData {
	next := strategyData{v.State, guest.Digest(v)}
	if m.isUndecided() && next.digest == 0 && (v.Again || v.Deadline == was) {
		next.digest = undecidedDigest
	}
	return next
}

// flags returns the flags of a record with the data.
func (m strategyData) flags() (f slotFlags) {
	if m.state != 0 {
		f |= hasState
	}
	if m.digest != 0 {
		f |= hasDigest
	}
	return f
}

// strategyDataSize returns the bytes of strategy data in a record with these flags.
func (f slotFlags) strategyDataSize() int {
	n := 0
	if f&hasState != 0 {
		n = 8
	}
	if f&hasDigest != 0 {
		n += 8
	}
	return n
}

// putTo writes the strategy data of a record with these flags to the start of b.
func (m strategyData) putTo(b []byte, flags slotFlags) {
	if flags&hasState != 0 {
		binary.LittleEndian.PutUint64(b, uint64(m.state))
		b = b[8:]
	}
	if flags&hasDigest != 0 {
		binary.LittleEndian.PutUint64(b, m.digest)
	}
}

// cutStrategyData decodes the strategy data at the start of a record.
func cutStrategyData(b []byte, flags slotFlags) (m strategyData, rest []byte) {
	if flags&hasState != 0 {
		m.state = int64(binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	if flags&hasDigest != 0 {
		m.digest = binary.LittleEndian.Uint64(b)
		b = b[8:]
	}
	return m, b
}

func recordSize(m *Message, flags slotFlags) int {
	n := flags.strategyDataSize() + 4 + 1 + len(m.Routing.Exchange) + 1 + len(m.Routing.Key) + uvarintLen(len(m.Props)) + len(m.Props) + len(m.Body)
	if flags&hasBCC != 0 {
		n += uvarintLen(len(m.Routing.BCC))
		for _, k := range m.Routing.BCC {
			n += uvarintLen(len(k)) + len(k)
		}
	}
	return n
}

// appendHead appends the head of a record, which ends before the length of the properties.
func appendHead(b []byte, age uint32, m *Message, k strategyData, flags slotFlags) []byte {
	if flags&hasStrategyData != 0 {
		n := flags.strategyDataSize()
		b = append(b, make([]byte, n)...)
		k.putTo(b[len(b)-n:], flags)
	}
	b = binary.LittleEndian.AppendUint32(b, age)
	b = append(b, byte(len(m.Routing.Exchange)))
	b = append(b, m.Routing.Exchange...)
	b = append(b, byte(len(m.Routing.Key)))
	b = append(b, m.Routing.Key...)
	if flags&hasBCC != 0 {
		b = binary.AppendUvarint(b, uint64(len(m.Routing.BCC)))
		for _, k := range m.Routing.BCC {
			b = binary.AppendUvarint(b, uint64(len(k)))
			b = append(b, k...)
		}
	}
	return b
}

// headSize returns the size of a record's head.
func headSize(b []byte, flags slotFlags) int {
	at := flags.strategyDataSize() + 4
	at += 1 + int(b[at])
	at += 1 + int(b[at])
	if flags&hasBCC != 0 {
		at += keysLen(b[at:])
	}
	return at
}

// cutRecord divides a whole record.
func cutRecord(b []byte, flags slotFlags) (head, props, body []byte) {
	at := headSize(b, flags)
	size, n := binary.Uvarint(b[at:])
	from := at + n
	return b[:at], b[from : from+int(size)], b[from+int(size):]
}

// maxAge is how long a segment takes records: ages have 32 bits of milliseconds.
const maxAge = hook.Instant(1) << 31 * 1e6

// age returns the age of a record in a segment. It is rounded up: a deadline computed
// from it must not be early.
func age(entered, began hook.Instant) uint32 { return uint32((entered - began + 999_999) / 1e6) }

// enteredAt returns when the message of a record entered its queue.
func enteredAt(b []byte, began hook.Instant, flags slotFlags) hook.Instant {
	return began + hook.Instant(binary.LittleEndian.Uint32(b[flags.strategyDataSize():]))*1e6
}

// keysLen returns the length of a stored list of keys.
func keysLen(b []byte) int {
	count, at := binary.Uvarint(b)
	for range count {
		size, n := binary.Uvarint(b[at:])
		at += n + int(size)
	}
	return at
}

// blindKeys decodes a stored list of keys; nil holds none.
func blindKeys(b []byte) []string {
	if b == nil {
		return nil
	}
	count, at := binary.Uvarint(b)
	keys := make([]string, count)
	for i := range keys {
		size, n := binary.Uvarint(b[at:])
		at += n
		keys[i] = string(b[at : at+int(size)])
		at += int(size)
	}
	return keys
}

func uvarintLen(n int) int {
	l := 1
	for ; n >= 0x80; n >>= 7 {
		l++
	}
	return l
}
