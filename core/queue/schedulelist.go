package queue

import (
	"bytes"

	"github.com/curfewmq/curfew/sdk/hook"
)

// ScheduleID returns a copy of the ID of a message that an exchange holds; nil means
// none.
func (q *Queue) ScheduleID(m *Held) []byte {
	s := q.cfg.Schedule
	if s == nil || s.Broken() {
		return nil
	}
	n := q.scheduling()
	defer n.done()
	var p hook.Plan
	r := q.store.readAlone(*q.at(m.Ref).slot())
	if _, ok := s.Plan(n.askStored(r.enqueued, &r), &p); !ok || len(p.ID) == 0 { // the plugin may refuse the message by now
		return nil
	}
	return bytes.Clone(p.ID)
}

// HeldByID returns the message that an exchange holds with an ID; nil if there is none.
func (q *Queue) HeldByID(id []byte) *Held {
	if q.cfg.Schedule == nil || len(id) == 0 || q.held() == 0 {
		return nil
	}
	n := q.scheduling()
	r, ok := n.ids[n.idOf(id)]
	if !ok {
		return nil
	}
	return q.HeldMessage(r)
}
