package policy

import (
	"encoding/binary"
	"unsafe"

	"github.com/curfewmq/curfew/sdk/abi"
)

// capacity is how many messages a call has at the most. With more, a collection
// of garbage in the middle of a call would come more often.
const capacity = 64

// The buffer holds the records of a call, and the verdicts behind them. texts is
// where verdicts point to for exchange and routing key.
var (
	buffer [capacity * (abi.RecordSize + abi.VerdictSize)]byte
	texts  [capacity][2 * abi.MaxName]byte
)

// each asks a hook about every message of a call.
func each(now int64, n int, hook func(int64, *Msg, *Verdict)) {
	records, verdicts := buffer[:n*abi.RecordSize], buffer[n*abi.RecordSize:]
	var m Msg
	var v Verdict
	for i := range n {
		m.read(records[i*abi.RecordSize:], uint32(i))
		v = Verdict{Action: NoOpinion, Until: None}
		hook(now, &m, &v)
		v.write(verdicts[i*abi.VerdictSize:], &texts[i])
	}
}

// read takes a message from its record.
func (m *Msg) read(b []byte, index uint32) {
	_ = b[abi.RecordSize-1]
	flags := b[abi.RecordFlags]
	*m = Msg{
		Enqueued:    instant(b, abi.RecordEnqueued),
		Expiration:  instant(b, abi.RecordExpiration),
		QueueTTL:    instant(b, abi.RecordQueueTTL),
		Deadline:    instant(b, abi.RecordDeadline),
		State:       instant(b, abi.RecordState),
		Size:        count(b, abi.RecordSizeOf),
		Deliveries:  count(b, abi.RecordDeliveries),
		Deaths:      count(b, abi.RecordDeaths),
		Priority:    b[abi.RecordPriority],
		Why:         Why(b[abi.RecordWhy]),
		Redelivered: flags&abi.FlagRedelivered != 0,
		Persistent:  flags&abi.FlagPersistent != 0,
		HasDLX:      flags&abi.FlagDLX != 0,
		queue:       binary.LittleEndian.Uint32(b[abi.RecordQueue:]),
		index:       index,
	}
}

func instant(b []byte, at int) int64 { return int64(binary.LittleEndian.Uint64(b[at:])) }

func count(b []byte, at int) int { return int(binary.LittleEndian.Uint32(b[at:])) }

// write puts a verdict where the broker reads it, and its strings into text. The
// broker refuses names that are too long; they must only not be cut to others.
func (v *Verdict) write(b []byte, text *[2 * abi.MaxName]byte) {
	_ = b[abi.VerdictSize-1]
	le := binary.LittleEndian
	le.PutUint32(b[abi.VerdictAction:], uint32(v.Action))
	le.PutUint32(b[abi.VerdictFlags:], v.flags())
	le.PutUint64(b[abi.VerdictUntil:], uint64(v.Until))
	le.PutUint64(b[abi.VerdictState:], uint64(v.State))
	if v.Action != DeadLetter {
		return
	}
	exchange := copy(text[:], v.Exchange)
	copy(text[exchange:], v.Key)
	le.PutUint32(b[abi.VerdictStrings:], uint32(uintptr(unsafe.Pointer(text))))
	le.PutUint16(b[abi.VerdictExchangeLen:], uint16(min(len(v.Exchange), 1<<16-1)))
	le.PutUint16(b[abi.VerdictKeyLen:], uint16(min(len(v.Key), 1<<16-1)))
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
