package queue

import "github.com/curfewmq/curfew/sdk/hook"

// slot is the state of one message in its queue, and the location of its record. It has
// no pointer. It stays in its position until the message leaves, so a requeued message is
// in its old position.
type slot struct {
	segment uint32
	offset  uint32
	length  uint32
	flags   slotFlags // one field for the rest: with five fields the compiler would not keep slots in registers
}

// slotFlags holds a message's flags, its state in bits 14 and 15, and above them its
// count of returns for the delivery limit. The journal stores the lowest 8 bits,
// too.
type slotFlags uint32

const (
	redelivered slotFlags = 1 << iota
	persistent
	hasDeathHistory // x-death is the broker's own
	hasState        // the strategy keeps 8 bytes with it
	hasBCC
	traced
	askHead    // OnHead wants to see it at the head
	hasDigest  // the record names the module that set the deadline
	inHeap     // the deadline heap has an item for it
	inRun      // its deadline is part of the sorted run
	inRequeued // its fifo's requeued heap has an item for it
	alike      // its record has the properties of an earlier one: see store.shared
	watched    // OnGone wants to know when it leaves
	unready    // it is held, and was never ready
)

// The states of a message.
const (
	stateFree    slotFlags = 0                         // left the queue, or was never there
	stateReady   slotFlags = 1 << 14                   // waits to be delivered
	stateUnacked slotFlags = 1 << 15                   // taken: delivered and not settled, or about to leave
	stateHeld              = stateReady | stateUnacked // waits for the end of its hold
	stateMask              = stateReady | stateUnacked
)

func (s *slot) is(state slotFlags) bool { return s.flags&stateMask == state }

func (s *slot) become(state slotFlags) { s.flags = s.flags&^stateMask | state }

const returnsShift = 16

// returns returns how many deliveries of the message failed, up to 65,535.
func (s *slot) returns() uint16 { return uint16(s.flags >> returnsShift) }

func (s *slot) setReturns(n uint16) {
	s.flags = s.flags&(1<<returnsShift-1) | slotFlags(n)<<returnsShift
}

// sharedFlags have the same bits in Flags, so that they need no translation.
const sharedFlags = redelivered | persistent | hasDeathHistory | traced

// persistent returns 1 for a persistent message, else 0: counting needs no branch then.
func (f slotFlags) persistent() int { return int(f/persistent) & 1 }

// public returns the flags as the rest of the broker knows them.
func (f slotFlags) public() Flags { return Flags(f & sharedFlags) }

// slotFlagsOf returns the flags of a message that enters with a verdict, and with the data of its strategy.
func slotFlagsOf(m *Message, v *hook.Verdict, data strategyData) slotFlags {
	f := slotFlags(m.Flags)&sharedFlags | data.flags()
	if v.AskHead {
		f |= askHead
	}
	if v.Watch {
		f |= watched
	}
	if len(m.Routing.BCC) > 0 {
		f |= hasBCC
	}
	return f
}
