package policy

import (
	"unsafe"

	"github.com/curfewmq/curfew/sdk/abi"
)

// capacity is the maximum number of messages per call. With more, a garbage
// collection in the middle of a call would happen more often.
const capacity = 64

// record is a message as the broker writes it, and answer a verdict as it reads
// it. The byte order is WebAssembly's, which all processors that run the tests
// share.
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

// The buffer holds the records of a call, and after them the verdicts. texts holds
// the exchanges and routing keys to which verdicts point.
var (
	buffer [capacity * (abi.RecordSize + abi.VerdictSize) / 8]uint64
	texts  [capacity][2 * abi.MaxName]byte
)

// place returns the records and the answers of a call with n messages.
func place(n int) ([]record, []answer) {
	start := unsafe.Pointer(&buffer)
	return unsafe.Slice((*record)(start), n), unsafe.Slice((*answer)(unsafe.Add(start, n*abi.RecordSize)), n)
}

// Arguments of hooks. One call is made at a time, and allocating them for each
// call would cost more than most policies do.
var (
	message Msg
	verdict Verdict
)

// each calls a hook for every message of a call.
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

// write puts a verdict where the broker reads it, and its strings into text. Names that
// are too long must be refused by the broker; here they must only not become other valid names.
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
