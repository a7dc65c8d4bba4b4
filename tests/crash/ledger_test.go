package crash

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// A ledger that finds no fault with anything proves nothing. These are histories with a fault in them, and their honest relatives.
func TestLedger(t *testing.T) {
	for _, tt := range []struct {
		name string
		play func(h *history)
		want string // how the breach begins; "" = there is none
	}{
		{"acknowledged", func(h *history) {
			m := h.published(h.plain)
			h.acked(m, h.open(h.plain))
			h.kill()
			h.census()
		}, ""},
		{"not confirmed", func(h *history) {
			h.publish(h.plain, message{})
			h.kill()
			h.census()
		}, ""},
		{"back after an acknowledgement that was not proved", func(h *history) {
			m := h.published(h.plain)
			h.acked(m, h.open(h.plain))
			h.kill()
			h.census(h.plain, m)
		}, ""},
		{"acknowledged by another client while the broker ends, and read late", func(h *history) {
			m := h.published(h.plain)
			h.end()
			h.acked(m, h.open(h.plain))
			h.deliverAs(m, h.open(h.plain), arrival{redelivered: true})
			h.kill()
			h.census()
		}, ""},
		{"read late while the broker ends, and lost", func(h *history) {
			m := h.published(h.plain)
			h.end()
			h.deliver(m, h.open(h.plain))
			h.deliverAs(m, h.open(h.plain), arrival{redelivered: true})
			h.kill()
			h.census()
		}, "lost"},
		{"dead after its time", func(h *history) {
			m := h.published(h.brief)
			h.pass(h.brief.ttl)
			h.census(h.brief.dead, m)
		}, ""},
		{"in two places, with two logs", func(h *history) {
			h.exact = false
			m := h.published(h.brief)
			h.pass(h.brief.ttl)
			s := h.open(h.brief.dead)
			h.proved(m, s)
			h.kill()
			h.deliver(m, h.open(h.brief.dead))
		}, ""},
		{"round the circle", func(h *history) {
			m := h.published(h.tasks)
			s := h.open(h.tasks)
			h.deliver(m, s)
			h.reject(s, &m.copies[0], h.now)
			h.pass(h.tasks.dead.ttl)
			h.deliverAs(m, s, arrival{reason: "expired", rejections: 1})
		}, ""},

		{"sent before its node was cut off", func(h *history) {
			m := h.publish(h.plain, message{via: "a"})
			h.pass(time.Millisecond)
			h.sever("a", h.now)
			h.confirm(m, h.now)
		}, ""},
		{"sent to another node", func(h *history) {
			h.sever("a", h.now)
			h.pass(time.Millisecond)
			h.confirm(h.publish(h.plain, message{via: "b"}), h.now)
		}, ""},
		{"sent when its node had a majority again", func(h *history) {
			h.sever("a", h.now)
			h.kill()
			h.pass(time.Millisecond)
			h.confirm(h.publish(h.plain, message{via: "a"}), h.now)
		}, ""},
		{"sent to a node that was cut off", func(h *history) {
			h.sever("a", h.now)
			h.pass(time.Millisecond)
			h.confirm(h.publish(h.plain, message{via: "a"}), h.now)
		}, "confirmed by a minority"},
		{"transient, sent to a node that was cut off", func(h *history) {
			h.sever("a", h.now)
			h.pass(time.Millisecond)
			h.confirm(h.publish(h.plain, message{via: "a", transient: true}), h.now)
		}, ""},
		{"confirmed by two owners", func(h *history) {
			m := h.published(h.plain)
			h.confirm(m, h.now)
		}, "confirmed twice"},
		{"acknowledged at two owners", func(h *history) {
			m := h.published(h.plain)
			h.end()
			h.proved(m, h.open(h.plain))
			h.proved(m, h.open(h.plain))
		}, "settled twice"},

		{"confirmed and lost", func(h *history) {
			h.published(h.plain)
			h.kill()
			h.census()
		}, "lost"},
		{"in one queue of two", func(h *history) {
			m := h.publish(h.plain, message{}, h.tasks)
			h.confirm(m, h.now)
			h.census(h.plain, m)
		}, "lost"},
		{"given back and lost", func(h *history) {
			m := h.published(h.plain)
			s := h.open(h.plain)
			h.deliver(m, s)
			h.giveBack(s, []*copied{&m.copies[0]}, h.now)
			h.census()
		}, "lost"},
		{"in a client's hands and lost", func(h *history) {
			m := h.published(h.plain)
			h.deliver(m, h.open(h.plain))
			h.kill()
			h.census()
		}, "lost"},
		{"dead and lost", func(h *history) {
			m := h.published(h.brief)
			s := h.open(h.brief)
			h.deliver(m, s)
			h.reject(s, &m.copies[0], h.now)
			h.census()
		}, "lost"},
		{"seen after a restart and lost", func(h *history) {
			m := h.publish(h.plain, message{})
			h.kill()
			h.census(h.plain, m)
			h.kill()
			h.census()
		}, "lost"},

		{"acknowledged, and back in the same life", func(h *history) {
			m := h.published(h.plain)
			h.acked(m, h.open(h.plain))
			h.deliver(m, h.open(h.plain))
		}, "resurrected"},
		{"surely acknowledged, and back", func(h *history) {
			m := h.published(h.plain)
			h.proved(m, h.open(h.plain))
			h.kill()
			h.census(h.plain, m)
		}, "resurrected"},
		{"acknowledged, and back after a proper end", func(h *history) {
			m := h.published(h.plain)
			h.acked(m, h.open(h.plain))
			h.ended()
			h.begin()
			h.census(h.plain, m)
		}, "resurrected"},
		{"acknowledged where it went, and back where it died", func(h *history) {
			m := h.published(h.brief)
			h.pass(h.brief.ttl)
			h.proved(m, h.open(h.brief.dead))
			h.kill()
			h.census(h.brief.dead, m)
		}, "resurrected"},
		{"forgotten, and back", func(h *history) {
			m := h.published(h.plain)
			h.retire()
			h.census(h.plain, m)
		}, "message 1 came to plain"},

		{"with two clients", func(h *history) {
			m := h.published(h.plain)
			h.deliver(m, h.open(h.plain))
			h.deliver(m, h.open(h.plain))
		}, "duplicated"},
		{"twice in a queue", func(h *history) { m := h.published(h.plain); h.census(h.plain, m, m) }, "duplicated"},
		{"where it died and where it went", func(h *history) {
			m := h.published(h.brief)
			s := h.open(h.brief)
			h.deliver(m, s)
			h.pass(h.brief.ttl)
			h.deliver(m, h.open(h.brief.dead))
		}, "duplicated"},
		{"twice, with two logs", func(h *history) {
			h.exact = false
			m := h.published(h.plain)
			h.deliver(m, h.open(h.plain))
			h.deliver(m, h.open(h.plain))
		}, "duplicated"},
		{"back where it died", func(h *history) {
			m := h.published(h.brief)
			early := h.open(h.brief)
			h.pass(h.brief.ttl)
			s := h.open(h.brief.dead)
			h.deliver(m, s)
			h.giveBack(s, []*copied{&m.copies[0]}, h.now)
			h.deliver(m, early)
		}, "moved back"},

		{"out of order", func(h *history) {
			a, b := h.published(h.plain), h.published(h.plain)
			s := h.open(h.plain)
			h.deliver(b, s)
			h.deliver(a, s)
		}, "out of order"},
		{"out of order at rest", func(h *history) {
			a, b := h.published(h.plain), h.published(h.plain)
			h.kill()
			h.census(h.plain, b, a)
		}, "out of order"},
		{"dead out of order", func(h *history) {
			a, b := h.published(h.timed), h.published(h.timed)
			h.pass(h.timed.ttl)
			h.census(h.timed.dead, b, a)
		}, "out of order"},
		{"dead out of order, with two logs", func(h *history) {
			h.exact = false
			a, b := h.published(h.timed), h.published(h.timed)
			h.pass(h.timed.ttl)
			s := h.open(h.timed.dead)
			h.deliver(b, s)
			h.deliver(a, s)
		}, "out of order"},
		{"dead out of order, with two logs and a crash", func(h *history) {
			h.exact = false
			a, b := h.published(h.timed), h.published(h.timed)
			h.pass(h.timed.ttl)
			h.kill()
			s := h.open(h.timed.dead)
			h.deliver(b, s)
			h.deliver(a, s) // again, and the client that has it by now has not read it
		}, ""},
		{"again after another", func(h *history) {
			a, b := h.published(h.plain), h.published(h.plain)
			s := h.open(h.plain)
			h.deliver(a, s)
			h.giveBack(s, []*copied{&a.copies[0]}, h.now)
			h.deliver(b, s)
			h.deliverAs(a, s, arrival{redelivered: true})
		}, ""},
		{"another client's", func(h *history) {
			a, b := h.published(h.plain), h.publish(h.plain, message{from: 1})
			s := h.open(h.plain)
			h.deliver(b, s)
			h.deliver(a, s)
		}, ""},
		{"more urgent", func(h *history) {
			a, b := h.publish(h.urgent, message{priority: 1}), h.publish(h.urgent, message{priority: 2})
			s := h.open(h.urgent)
			h.deliver(b, s)
			h.deliver(a, s)
		}, ""},

		{"transient", func(h *history) {
			m := h.publish(h.plain, message{transient: true})
			h.confirm(m, h.now)
			h.kill()
			h.census()
		}, ""},
		{"transient and there", func(h *history) {
			m := h.publish(h.plain, message{transient: true})
			h.kill()
			h.census(h.plain, m)
		}, "transient"},
		{"delivered after its time", func(h *history) {
			m := h.published(h.brief)
			h.kill()
			h.pass(h.brief.ttl + time.Second)
			h.census(h.brief, m)
		}, "delivered after its time"},
		{"delivered after its own time", func(h *history) {
			m := h.publish(h.plain, message{lifetime: time.Second})
			h.confirm(m, h.now)
			h.pass(2 * time.Second)
			h.census(h.plain, m)
		}, "delivered after its time"},
		{"dead before its time", func(h *history) {
			m := h.published(h.brief)
			h.pass(h.brief.ttl / 2)
			h.census(h.brief.dead, m)
		}, "dead before its time"},
		{"rejected by nobody", func(h *history) {
			m := h.published(h.brief)
			h.deliverAs(m, h.open(h.brief.dead), arrival{reason: "rejected", rejections: 1})
		}, "dead for no reason"},
		{"rejected once, counted twice", func(h *history) {
			m := h.published(h.brief)
			s := h.open(h.brief)
			h.deliver(m, s)
			h.reject(s, &m.copies[0], h.now)
			h.deliverAs(m, h.open(h.brief.dead), arrival{reason: "rejected", rejections: 2})
		}, "dead for no reason"},
		{"dead without a reason", func(h *history) {
			m := h.published(h.brief)
			h.deliverAs(m, h.open(h.brief.dead), arrival{})
		}, "dead for no reason"},

		{"not marked in the same life", func(h *history) {
			m := h.published(h.plain)
			s := h.open(h.plain)
			h.deliver(m, s)
			h.giveBack(s, []*copied{&m.copies[0]}, h.now)
			h.deliver(m, s)
		}, "not marked"},
		{"not marked though the log knows", func(h *history) {
			m := h.published(h.plain)
			h.deliver(m, h.open(h.plain))
			h.prove(&evidence{at: h.plain, seen: []*copied{&m.copies[0]}}, h.now)
			h.kill()
			h.census(h.plain, m)
		}, "not marked"},
		{"not marked, the broker killed at once", func(h *history) {
			m := h.published(h.plain)
			h.deliver(m, h.open(h.plain))
			h.kill()
			h.census(h.plain, m)
		}, ""},
		{"marked though nobody had it", func(h *history) {
			m := h.published(h.plain)
			h.kill()
			h.deliverAs(m, h.openAtRest(h.plain), arrival{redelivered: true})
		}, "marked"},

		{"held, and not yet there", func(h *history) {
			h.booked(time.Second, false)
			h.kill()
			h.census()
		}, ""},
		{"released in time", func(h *history) {
			m := h.booked(time.Second, false)
			h.kill()
			h.pass(time.Second)
			h.census(h.calendar, m)
		}, ""},
		{"held, transient and there after a crash", func(h *history) {
			m := h.booked(time.Second, true)
			h.kill()
			h.pass(time.Second)
			h.census(h.calendar, m)
		}, ""},
		{"released, transient and lost in a crash", func(h *history) {
			h.booked(time.Second, true)
			h.pass(time.Second)
			h.kill()
			h.census()
		}, ""},
		{"released twice, with two logs", func(h *history) {
			h.exact = false
			m := h.booked(time.Second, false)
			h.pass(time.Second)
			h.proved(m, h.open(h.calendar))
			h.kill()
			h.deliver(m, h.open(h.calendar))
		}, ""},
		{"redriven", func(h *history) {
			m := h.published(h.shelf)
			h.pass(h.shelf.ttl)
			s := h.open(h.shelf.dead)
			h.deliver(m, s)
			h.giveBack(s, []*copied{&m.copies[0]}, h.now)
			h.pass(time.Second)
			h.deliverAs(m, h.open(h.shelf), arrival{reason: "expired"})
		}, ""},
		{"redriven and lost", func(h *history) {
			m := h.published(h.shelf)
			h.pass(h.shelf.ttl)
			s := h.open(h.shelf.dead)
			h.deliver(m, s)
			h.giveBack(s, []*copied{&m.copies[0]}, h.now)
			h.census()
		}, "lost"},
		{"redriven, and in two hands", func(h *history) {
			m := h.published(h.shelf)
			h.pass(h.shelf.ttl)
			h.deliver(m, h.open(h.shelf.dead))
			h.deliverAs(m, h.open(h.shelf), arrival{reason: "expired"})
		}, "duplicated"},
		{"redriven after it was acknowledged", func(h *history) {
			m := h.published(h.shelf)
			h.pass(h.shelf.ttl)
			h.acked(m, h.open(h.shelf.dead))
			h.deliverAs(m, h.open(h.shelf), arrival{reason: "expired"})
		}, "resurrected"},
		{"back in time", func(h *history) {
			m := h.returned()
			h.pass(h.retried.retry)
			h.deliverAs(m, h.open(h.retried), arrival{redelivered: true})
		}, ""},
		{"back after a crash", func(h *history) {
			m := h.returned()
			h.kill()
			h.deliverAs(m, h.open(h.retried), arrival{redelivered: true})
		}, ""},
		{"back at once", func(h *history) {
			m := h.returned()
			h.deliverAs(m, h.open(h.retried), arrival{redelivered: true})
		}, "back before its time"},
		{"released early", func(h *history) {
			m := h.booked(time.Second, false)
			h.pass(900 * time.Millisecond)
			h.deliver(m, h.open(h.calendar))
		}, "released before its time"},
		{"held and lost", func(h *history) {
			h.booked(time.Second, false)
			h.kill()
			h.pass(time.Second)
			h.census()
		}, "lost"},
		{"held, transient and lost in a crash", func(h *history) {
			h.booked(time.Second, true)
			h.kill()
			h.pass(time.Second)
			h.census()
		}, "lost"},
		{"released twice", func(h *history) {
			m := h.booked(time.Second, false)
			h.pass(time.Second)
			h.deliver(m, h.open(h.calendar))
			h.deliver(m, h.open(h.calendar))
		}, "duplicated"},

		{"somewhere else", func(h *history) { m := h.published(h.plain); h.census(h.urgent, m) }, "misrouted"},
		{"damaged", func(h *history) {
			m := h.published(h.plain)
			h.deliverAs(m, h.open(h.plain), arrival{damaged: "a byte"})
		}, "damaged"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHistory()
			tt.play(h)
			h.judge(t, tt.want)
		})
	}
}

// history plays clients and a broker to a ledger.
type history struct {
	*ledger
	now                                          time.Time
	plain, urgent, timed, brief, tasks, calendar *place
	retried, shelf                               *place
}

func newHistory() *history {
	l := newLayout()
	find := func(name string) *place {
		return l.places[slices.IndexFunc(l.places, func(p *place) bool { return p.name == name })]
	}
	h := &history{
		ledger: newLedger(true), now: time.Unix(1_800_000_000, 0),
		plain: find("plain"), urgent: find("urgent"), timed: find("timed"), brief: find("events.brief"), tasks: find("tasks"), calendar: find("calendar"),
		retried: find("retried"), shelf: find("shelf"),
	}
	h.clock = func() time.Time { return h.now }
	h.begin()
	return h
}

func (h *history) judge(t *testing.T, want string) {
	t.Helper()
	for _, b := range h.breaches {
		if _, text, _ := strings.Cut(b, ": "); want != "" && strings.HasPrefix(text, want) {
			return
		}
	}
	if want != "" || len(h.breaches) > 0 {
		t.Errorf("got the breaches %q, want one that begins with %q", h.breaches, want)
	}
}

func (h *history) pass(d time.Duration) { h.now = h.now.Add(d) }

func (h *history) kill() {
	h.begin()
	h.pass(time.Millisecond)
}

func (h *history) publish(p *place, m message, more ...*place) *message {
	return h.send(m, append([]*place{p}, more...), h.now)
}

func (h *history) published(p *place) *message {
	m := h.publish(p, message{})
	h.confirm(m, h.now)
	return m
}

// returned is a message that a client had and gave back, in a place where it waits then.
func (h *history) returned() *message {
	m := h.published(h.retried)
	s := h.open(h.retried)
	h.deliver(m, s)
	h.giveBack(s, []*copied{&m.copies[0]}, h.now)
	return m
}

// booked is a message that was confirmed, and that an exchange holds.
func (h *history) booked(delay time.Duration, transient bool) *message {
	m := h.publish(h.calendar, message{delay: delay, scheduled: true, transient: transient})
	h.confirm(m, h.now)
	return m
}

func (h *history) open(p *place) *session { return h.ledger.open(p, false, h.now) }

func (h *history) openAtRest(p *place) *session { return h.ledger.open(p, true, h.now) }

// deliver delivers a message for the first time. Where only the dead come, it expired.
func (h *history) deliver(m *message, s *session) {
	d := arrival{}
	if s.place.source != nil && s.place != m.copies[0].home {
		d.reason = "expired"
	}
	h.deliverAs(m, s, d)
}

func (h *history) deliverAs(m *message, s *session, d arrival) {
	d.id, d.at = m.id, h.now
	h.ledger.deliver(s, d)
}

func (h *history) acked(m *message, s *session) {
	h.deliver(m, s)
	h.acknowledge(s, &m.copies[0], h.now)
}

func (h *history) proved(m *message, s *session) {
	h.acked(m, s)
	h.prove(&evidence{at: s.place, acked: []*copied{&m.copies[0]}}, h.now)
}

// census finds messages in a place, and nothing anywhere else.
func (h *history) census(found ...any) {
	if len(found) > 0 {
		s := h.openAtRest(found[0].(*place))
		for _, m := range found[1:] {
			h.deliver(m.(*message), s)
		}
	}
	h.lost(h.missing())
}

func TestPlausible(t *testing.T) {
	list := []entry{{1, yes, maybe}, {2, yes, maybe}, {3, yes, no}, {4, yes, no}, {5, maybe, no}}
	for _, tt := range []struct {
		name  string
		found []int
		want  bool
	}{
		{"everything", []int{1, 2, 3, 4, 5}, true},
		{"what is certain", []int{3, 4}, true},
		{"an acknowledgement was lost", []int{2, 3, 4}, true},
		{"lost", []int{3}, false},
		{"out of order", []int{4, 3}, false},
		{"twice", []int{3, 4, 4}, false},
		{"another", []int{3, 4, 6}, false},
		{"nothing", nil, false},
	} {
		if got := plausible(tt.found, list); got != tt.want {
			t.Errorf("%s: %v: got %v", tt.name, tt.found, got)
		}
	}
}

func TestRead(t *testing.T) {
	p := newHistory().brief
	m := publishing(&message{id: 7, size: 100})
	d := amqp091.Delivery{MessageId: m.MessageId, Headers: m.Headers, Body: m.Body, Redelivered: true}
	d.Headers["x-death"] = []any{
		amqp091.Table{"reason": "expired", "queue": p.name, "count": int64(3)},
		amqp091.Table{"reason": "rejected", "queue": p.name, "count": int64(2)},
	}
	got := read(&d, p)
	got.at = time.Time{}
	if want := (arrival{id: 7, redelivered: true, reason: "expired", rejections: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	d.Body[99]++
	if got := read(&d, p); got.damaged == "" {
		t.Errorf("a changed byte passed: %+v", got)
	}
}
