package crash

import (
	"fmt"
	"time"
)

// rule is something that no delivery may do. The rules that speak of more than one place of a message hold where messages move
// between places in one piece; see [ledger.whole]. Those that speak of more than one client do not hold while the broker ends: it
// closes one connection after the other, and what it takes back from one it hands to the next, while the first still reads what it
// was sent before.
type rule struct {
	name   string
	broken func(l *ledger, c *copied, s *session, d *arrival) bool
}

// slack is how far the clocks of two processes may be apart: a broker sets its own by the wall clock when it starts, which may have
// been set since the others did.
func (l *ledger) slack() time.Duration {
	const usual = 20 * time.Millisecond
	now := time.Now()
	set := now.Round(0).Sub(l.began.Round(0)) - now.Sub(l.began) // without Round, times tell how much has passed
	return usual + set.Abs()
}

var rules = []rule{
	{"damaged", func(_ *ledger, _ *copied, _ *session, d *arrival) bool { return d.damaged != "" }},
	{"resurrected", resurrected},
	{"duplicated", duplicated},
	{"moved back", movedBack},
	{"transient, yet it survived", func(l *ledger, c *copied, _ *session, _ *arrival) bool {
		return c.transient && c.life < l.memory && !c.scheduled
	}},
	{"released before its time", hasty},
	{"delivered after its time", overdue},
	{"back before its time", eager},
	{"dead before its time", early},
	{"dead for no reason", groundless},
	{"not marked as redelivered", unmarked},
	{"marked as redelivered", wronglyMarked},
	{"out of order", reordered},
}

// whole reports whether a copy moves in one piece, so that there is never more than one.
func (l *ledger) whole(c *copied) bool { return l.exact && !c.home.careful }

// single reports whether there is but one of a copy, as far as what is seen in a place can tell. If it does not move in one piece,
// a crash may leave it where it died and where it went; round a circle, that gets home, and so does what an exchange releases.
func (l *ledger) single(c *copied, p *place) bool {
	return l.whole(c) || p == c.home && !p.circle() && !c.scheduled
}

// resurrected: an acknowledged message is gone for good, at once as long as the broker lives, and after that if the acknowledgement
// is known to be durable.
func resurrected(l *ledger, c *copied, s *session, _ *arrival) bool {
	if l.ending || !c.ack.sent || !l.whole(c) && (c.ack.where != s.place || !l.single(c, s.place)) {
		return false
	}
	return c.ack.sure || c.ack.life == l.life
}

// duplicated: what one client holds no other gets.
func duplicated(l *ledger, c *copied, s *session, _ *arrival) bool {
	if l.ending || !l.single(c, s.place) {
		return false
	}
	return c.visit(s.place).holder != nil || l.whole(c) && c.held()
}

// movedBack: a message that died does not return to where it died.
func movedBack(l *ledger, c *copied, s *session, _ *arrival) bool {
	dead := c.visits[1]
	return l.whole(c) && !l.ending && !c.home.circle() && s.place == c.home && dead.count > 0 && (dead.life == l.life || dead.noted)
}

// overdue: deadlines are kept, also those that pass while the broker is down. What is sent before its deadline may be seen after
// it; what nobody could get before it must not be.
func overdue(l *ledger, c *copied, s *session, d *arrival) bool {
	t := c.timeAtHome()
	if c.home.redriven && d.reason != "" {
		return false // it died since, was sent back, and expires later
	}
	return s.place == c.home && t > 0 && !c.confirmed.IsZero() && c.confirmed.Add(t+l.slack()+l.behind).Before(s.opened)
}

// hasty: nobody gets a message while it is held.
func hasty(l *ledger, c *copied, _ *session, d *arrival) bool {
	return c.delay > 0 && d.at.Add(l.slack()).Before(c.sent.Add(c.delay))
}

// eager: what comes back waits, unless it was the broker's end that brought it back.
func eager(l *ledger, c *copied, s *session, d *arrival) bool {
	v := c.visit(s.place)
	return s.place.retry > 0 && v.life == l.life && !v.back.IsZero() && d.at.Add(l.slack()).Before(v.back.Add(s.place.retry))
}

func early(l *ledger, c *copied, s *session, d *arrival) bool {
	t := c.timeAtHome()
	if c.home.circle() && !c.home.redriven {
		t = c.home.dead.ttl
	}
	return d.reason == "expired" && d.at.Add(l.slack()).Before(c.sent.Add(t))
}

// groundless: messages die of what is known to have happened to them, and get nowhere else alive.
func groundless(_ *ledger, c *copied, s *session, d *arrival) bool {
	switch {
	case d.rejections > c.rejects:
		return true
	case d.reason == "":
		return s.place != c.home
	case c.home.redriven && s.place == c.home:
		return d.reason == "rejected" && c.rejects == 0
	case c.home.circle() && s.place == c.home:
		return d.reason != "expired" || c.rejects == 0
	case s.place == c.home:
		return true
	case d.reason == "rejected":
		return c.rejects == 0
	case d.reason == "maxlen":
		return c.home.limit == 0
	}
	return d.reason != "expired" || c.timeAtHome() == 0
}

// unmarked: a message that was delivered from a place before is marked. If the broker was killed in between, that is certain
// only if the log knows.
func unmarked(l *ledger, c *copied, s *session, d *arrival) bool {
	v := c.visit(s.place)
	if l.ending || d.redelivered || v.count == 0 || c.home.circle() || !l.single(c, s.place) {
		return false
	}
	return v.noted || v.life == l.life
}

// wronglyMarked: a message is not marked if nobody has read from its place since it was sent.
func wronglyMarked(_ *ledger, c *copied, s *session, d *arrival) bool {
	return d.redelivered && s.rest && s.place == c.home && c.message.life > s.before
}

// reordered: messages of a client and a priority are delivered for the first time in the order they were sent, and lie in that
// order.
func reordered(l *ledger, c *copied, s *session, d *arrival) bool {
	in, ok := l.laneOf(c, s, d)
	return ok && c.id < s.order[in]
}

// laneOf returns the order that a delivery has to keep, if there is one.
func (l *ledger) laneOf(c *copied, s *session, d *arrival) (in lane, ok bool) {
	in = lane{c.from, c.home, c.priority}
	if s.place.levels == 0 {
		in.priority = 0
	}
	switch {
	case c.home.redriven: // what comes back is behind all others
		return in, false
	case d.redelivered && (!s.rest || s.place.retry > 0), c.rejects > 0, c.delay > 0:
		return in, false
	case s.place == c.home:
		return in, true
	}
	held := c.visits[0].count > 0 // a message that a client held died when it was given back
	return in, c.lifetime == 0 && !c.home.attended && !held && (l.whole(c) || l.first(c, s))
}

// first reports whether a dead copy that may be there twice was not delivered before. A crash may have left one that another client
// has been sent meanwhile, and has not yet read.
func (l *ledger) first(c *copied, s *session) bool {
	return c.visits[1].count == 0 && (s.rest || c.message.life == l.life)
}

func (d arrival) String() string {
	text := fmt.Sprintf("redelivered=%v", d.redelivered)
	if d.reason != "" {
		text += fmt.Sprintf(" %s, rejected %d times", d.reason, d.rejections)
	}
	if d.damaged != "" {
		text += ": " + d.damaged
	}
	return text
}
