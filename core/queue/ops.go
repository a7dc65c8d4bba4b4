package queue

import (
	"encoding/binary"
	"errors"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Changes of the persistent messages of a durable queue are journalled as operations, one
// after another:
//
//	 0      1         9
//	+------+---------+----------------------------------------------------+
//	| kind | queue   | rest, by kind                                      |
//	| u8   | u64     |                                                    |
//	+------+---------+----------------------------------------------------+
//	 enqueue   ref u64 | deadline i64 | entered i64 | flags u8 | returns u16 | size u32 | record
//	 settle    count u32 | ref u64 ...
//	 return    ref u64 | returns u16
//	 renew     ref u64 | deadline i64 | state i64
//	 handed    level u8 | seq u64          every message of the level below seq was delivered
//	 purge     runs u32 | ref u64 | count u32 ...   settle, for runs of messages
//	 discard   ref u64 | reason u8         it is being dead-lettered, out of reach of consumers
//	 renew by  ref u64 | deadline i64 | state i64 | digest u64
//	 ask       ref u64                     hooks want to be asked when it is next; an enqueue has a flag for that
//	 hold      ref u64 | until i64 | flags u8 | nacks u16   it is held, or not any more if until is 0; nacks: see holding
//	 enqueue alike   as enqueue; the record is without its properties and their length, which are those of the enqueue before it
//
// Numbers are little-endian; instants are nanoseconds since the Unix epoch. A
// record is laid out as in a memory segment, except that its age is void. queue is the
// number that the queue got when it was declared; it is never reused.
//
// A message is in the queue if it was enqueued and not settled since. An enqueue of a
// message that is there relocates it: only its extent changes. The enqueue that an
// "enqueue alike" refers to is in the same commit, which is one entry of the journal.
const (
	opEnqueued byte = iota + 1
	opSettled
	opReturned
	opDeadlineSet
	opDelivered
	opPurged
	opDeadLettering
	opDeadlineSetBy // opDeadlineSet for a message that may have a digest
	opAsks
	opEnqueuedAlike
	opHeld
)

const (
	opHeader      = 1 + 8
	enqueueHeader = opHeader + 8 + 8 + 8 + 1 + 2 + 4
	runSize       = 8 + 4
)

// journalled are the flags that a message keeps across a restart.
const journalled = redelivered | persistent | hasDeathHistory | hasState | hasBCC | traced | askHead | hasDigest // 8 bits

func appendOp(b []byte, kind byte, queue uint64) []byte {
	return binary.LittleEndian.AppendUint64(append(b, kind), queue)
}

// appendEnqueued appends an enqueue of either kind without its record, which has size bytes.
func appendEnqueued(b []byte, kind byte, queue uint64, r Ref, deadline, entered hook.Instant, s *slot, size int) []byte {
	b = appendOp(b, kind, queue)
	b = binary.LittleEndian.AppendUint64(b, uint64(r))
	b = binary.LittleEndian.AppendUint64(b, uint64(deadline))
	b = binary.LittleEndian.AppendUint64(b, uint64(entered))
	b = append(b, byte(s.flags&journalled))
	b = binary.LittleEndian.AppendUint16(b, s.returns())
	return binary.LittleEndian.AppendUint32(b, uint32(size))
}

func appendReturned(b []byte, queue uint64, r Ref, returns uint16) []byte {
	b = appendOp(b, opReturned, queue)
	b = binary.LittleEndian.AppendUint64(b, uint64(r))
	return binary.LittleEndian.AppendUint16(b, returns)
}

func appendDeadlineSet(b []byte, queue uint64, r Ref, deadline hook.Instant, m strategyData, flags slotFlags) []byte {
	kind := opDeadlineSet
	if flags&hasDigest != 0 {
		kind = opDeadlineSetBy
	}
	b = appendOp(b, kind, queue)
	b = binary.LittleEndian.AppendUint64(b, uint64(r))
	b = binary.LittleEndian.AppendUint64(b, uint64(deadline))
	b = binary.LittleEndian.AppendUint64(b, uint64(m.state))
	if kind == opDeadlineSetBy {
		b = binary.LittleEndian.AppendUint64(b, m.digest)
	}
	return b
}

func appendDeadLettering(b []byte, queue uint64, r Ref, why hook.Reason) []byte {
	b = appendOp(b, opDeadLettering, queue)
	return append(binary.LittleEndian.AppendUint64(b, uint64(r)), byte(why))
}

// The flags of a hold.
const (
	heldUnready  = 1 // the message is held since it entered
	heldReleased = 2 // the hold has ended, and the message is not held
)

func appendHeld(b []byte, queue uint64, r Ref, until hook.Instant, flags byte, nacks uint16) []byte {
	b = binary.LittleEndian.AppendUint64(appendOp(b, opHeld, queue), uint64(r))
	b = binary.LittleEndian.AppendUint64(b, uint64(until))
	return binary.LittleEndian.AppendUint16(append(b, flags), nacks)
}

func appendAsks(b []byte, queue uint64, r Ref) []byte {
	return binary.LittleEndian.AppendUint64(appendOp(b, opAsks, queue), uint64(r))
}

func appendDelivered(b []byte, queue uint64, level int, seq uint64) []byte {
	b = append(appendOp(b, opDelivered, queue), byte(level))
	return binary.LittleEndian.AppendUint64(b, seq)
}

// errOps is returned for operations that no queue wrote. They passed the journal's
// checksum, so they are not damaged: the cause is a bug, or data of another version.
var errOps = errors.New("malformed queue operations")

// reader reads the fields of operations. If there are too few bytes it sets bad and
// returns zeros.
type reader struct {
	b     []byte
	bad   bool
	props []byte // of the last enqueue, with their length
	room  []byte // for a record that is put together
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad = true
		r.b = nil
		return make([]byte, min(max(n, 0), 8))
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) u8() byte         { return r.take(1)[0] }
func (r *reader) u16() uint16      { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32      { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64      { return binary.LittleEndian.Uint64(r.take(8)) }
func (r *reader) at() hook.Instant { return hook.Instant(r.u64()) }

// uvarint reads a number no larger than the size of a message.
func (r *reader) uvarint() int {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > 1<<31 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

// reasonOf returns the reason with a number, none if there is none.
func reasonOf(n byte) hook.Reason {
	if n >= byte(hook.Reasons) {
		return hook.ReasonNone
	}
	return hook.Reason(n)
}

func (r *reader) refs(n uint32) []byte { return r.take(int(n) * 8) }

// strategyData reads the strategy data of an operation that sets a deadline.
func (r *reader) strategyData(kind byte) strategyData {
	m := strategyData{state: int64(r.u64())}
	if kind == opDeadlineSetBy {
		m.digest = r.u64()
	}
	return m
}

// record reads the record of an enqueue, which has size bytes there. It returns the whole
// record, valid until the next call, how many bytes the operation saves, and the size of
// the body.
func (r *reader) record(kind byte, size int, flags slotFlags) (whole []byte, saved, body int) {
	whole = r.take(size)
	in := reader{b: whole}
	in.head(flags)
	head := len(whole) - len(in.b)
	if kind == opEnqueued {
		before := in.b
		in.take(in.uvarint())
		r.bad = r.bad || in.bad
		r.props = before[:len(before)-len(in.b)]
		return whole, 0, len(in.b)
	}
	if r.bad = r.bad || in.bad || r.props == nil; r.bad {
		return nil, 0, 0
	}
	r.room = append(append(append(r.room[:0], whole[:head]...), r.props...), in.b...)
	return r.room, len(r.props), len(in.b)
}

// head reads the head of a record, which ends before the properties.
func (r *reader) head(flags slotFlags) {
	r.take(flags.strategyDataSize())
	r.u32()
	r.take(int(r.u8()))
	r.take(int(r.u8()))
	if flags&hasBCC != 0 {
		for n := r.uvarint(); n > 0 && !r.bad; n-- {
			r.take(r.uvarint())
		}
	}
}
