package queue

import (
	"cmp"
	"slices"

	"github.com/curfewmq/curfew/sdk/hook"
)

// holdModel is a queue with holds as anyone would write it: a list that is searched.
type holdModel struct {
	limit     int64 // of deliveries that failed; negative means none
	most      int   // messages that are ready when others are released; 0 means no limit
	drop      bool  // what exceeds it is dropped, and does not wait
	nacksWait bool  // what came back without a failure is held, too
	paused    hook.Instant
	list      []holdModelMessage
	next      int
	gone      map[hook.Reason]int
}

type holdModelMessage struct {
	id            uint64
	ref           Ref
	level, seq    int
	state         slotFlags
	until         hook.Instant // while it is held
	deadline      hook.Instant
	unready       bool
	failed, nacks int64
	delivered     bool // to a consumer
	restarted     bool // it was delivered before a restart
	passed        bool // it was ready at a restart: others behind it may have been delivered
}

// stateMoving is the state of messages that a redrive has under way.
const stateMoving = slotFlags(1)

const backOff = 500 // milliseconds, for each time that a message came back

func (m *holdModel) find(id uint64) *holdModelMessage {
	i := slices.IndexFunc(m.list, func(x holdModelMessage) bool { return x.id == id })
	if i < 0 {
		return nil
	}
	return &m.list[i]
}

func (m *holdModel) remove(id uint64, why hook.Reason) {
	m.list = slices.DeleteFunc(m.list, func(x holdModelMessage) bool { return x.id == id })
	m.gone[why]++
}

// advance ends holds, and then expires what is due, which may make room for others.
func (m *holdModel) advance(now hook.Instant) {
	for changed := true; changed; {
		changed = m.releaseDue(now)
		for _, x := range slices.Clone(m.list) {
			if (x.state == stateReady || x.state == stateHeld && !x.unready) && x.deadline != 0 && x.deadline <= now {
				m.remove(x.id, hook.ReasonExpired)
				changed = true
			}
		}
	}
}

// releaseDue ends holds in the order of their ends, as the limit allows.
func (m *holdModel) releaseDue(now hook.Instant) (changed bool) {
	if m.ready() > 0 && now < m.paused {
		return false
	}
	m.paused = 0
	for {
		x := m.nextHeld(now)
		switch {
		case x == nil:
			return changed
		case !x.unready || m.most == 0 || m.ready() < m.most:
			m.release(now, x)
		case m.drop:
			m.remove(x.id, hook.ReasonMaxLen)
		default:
			m.paused = now + second
			return changed
		}
		changed = true
	}
}

// nextHeld returns the message whose hold ends first; nil if none ends by now.
func (m *holdModel) nextHeld(now hook.Instant) (next *holdModelMessage) {
	for i := range m.list {
		x := &m.list[i]
		if x.state != stateHeld || x.until > now {
			continue
		}
		if next == nil || cmp.Or(cmp.Compare(x.until, next.until), cmp.Compare(x.level, next.level), cmp.Compare(x.seq, next.seq)) < 0 {
			next = x
		}
	}
	return next
}

func (m *holdModel) ready() (n int) {
	for i := range m.list {
		if m.list[i].state == stateReady {
			n++
		}
	}
	return n
}

func (*holdModel) release(now hook.Instant, x *holdModelMessage) {
	x.state = stateReady
	if x.unready {
		if x.deadline != 0 {
			x.deadline = max(x.deadline.Add(now.Sub(x.until)), now+1)
		}
		x.until = 0
	}
	x.unready = false
}

// first returns the message that is next; nil if none is ready.
func (m *holdModel) first() (first *holdModelMessage) {
	for i := range m.list {
		x := &m.list[i]
		if x.state == stateReady && (first == nil || x.level > first.level || x.level == first.level && x.seq < first.seq) {
			first = x
		}
	}
	return first
}

// comeBack settles a delivery that is to be made again, and reports whether it is.
func (m *holdModel) comeBack(now hook.Instant, x *holdModelMessage, kind SettleKind) {
	if kind == Requeue {
		x.nacks++
	} else if x.failed++; m.limit >= 0 && x.failed > m.limit {
		m.remove(x.id, hook.ReasonDeliveryLimit)
		return
	}
	if kind == Requeue && !m.nacksWait {
		x.state = stateReady
		return
	}
	x.state, x.until = stateHeld, now.AddMillis(backOff*(x.failed+x.nacks))
}
