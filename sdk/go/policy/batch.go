package policy

import (
	"unsafe"

	"github.com/curfewmq/curfew/sdk/abi"
)

// capacity is how many messages a call has at the most. With more, a collection
// of garbage in the middle of a call would come more often.
const capacity = 64

// record is a message as the broker writes it, and answer a verdict as it reads
// it. Bytes are in the order that WebAssembly has, and so have all processors that
// tests run on.
type (
	record struct {
		enqueued, expiration, queueTTL, deadline, state int64

		size, deliveries, deaths, queue uint32

		priority, flags, why byte

		_ [abi.RecordSize - abi.RecordReserved]byte
	}
	answer struct {
		action, flags uint32
		until, state  int64
		strings       uint32

		exchangeLength, keyLength uint16
	}
)

// The buffer holds the records of a call, and the verdicts behind them. texts is
// where verdicts point to for exchange and routing key.
var (
	buffer [capacity * (abi.RecordSize + abi.VerdictSize) / 8]uint64
	texts  [capacity][2 * abi.MaxName]byte
)

// place returns the records and the answers of a call with n messages.
func place(n int) ([]record, []answer) {
	start := unsafe.Pointer(&buffer)
	return unsafe.Slice((*record)(start), n), unsafe.Slice((*answer)(unsafe.Add(start, n*abi.RecordSize)), n)
}

// What hooks are given; one call is made at a time, and allocating them anew for
// each would cost more than most policies do.
var (
	message Msg
	verdict Verdict
)

// each asks a hook about every message of a call.
func each(now int64, n int, hook func(int64, *Msg, *Verdict)) {
	records, answers := place(min(n, capacity))
	for i := range records {
		message.read(&records[i], uint32(i))
		verdict = Verdict{Action: NoOpinion, Until: None}
		hook(now, &message, &verdict)
		verdict.write(&answers[i], &texts[i])
	}
}

// read takes a message from its record.
func (m *Msg) read(r *record, index uint32) {
	m.Enqueued, m.Expiration, m.QueueTTL, m.Deadline, m.State = r.enqueued, r.expiration, r.queueTTL, r.deadline, r.state
	m.Size, m.Deliveries, m.Deaths = int(r.size), int(r.deliveries), int(r.deaths)
	m.Priority, m.Why = r.priority, Why(r.why)
	m.Redelivered = r.flags&abi.FlagRedelivered != 0
	m.Persistent = r.flags&abi.FlagPersistent != 0
	m.HasDLX = r.flags&abi.FlagDLX != 0
	m.Held, m.queue, m.index = 0, r.queue, index
}

// write puts a verdict where the broker reads it, and its strings into text. The
// broker refuses names that are too long; they must only not be cut to others.
func (v *Verdict) write(a *answer, text *[2 * abi.MaxName]byte) {
	a.action, a.flags, a.until, a.state = uint32(v.Action), v.flags(), v.Until, v.State
	if v.Action != DeadLetter {
		return
	}
	exchange := copy(text[:], v.Exchange)
	copy(text[exchange:], v.Key)
	a.strings = uint32(uintptr(unsafe.Pointer(text)))
	a.exchangeLength = uint16(min(len(v.Exchange), 1<<16-1))
	a.keyLength = uint16(min(len(v.Key), 1<<16-1))
}

func (v *Verdict) flags() (flags uint32) {
	if v.HasState {
		flags |= abi.SetState
	}
	if v.Ask {
		flags |= abi.AskAtHead
	}
	return flags
}
