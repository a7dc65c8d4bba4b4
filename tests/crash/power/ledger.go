package power

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// place is a durable queue that clients use.
type place struct {
	name    string
	ttl     time.Duration // of every message; 0 = none
	limit   int           // x-max-length; 0 = none
	lease   time.Duration // x-expires; 0 = none
	careful bool          // at-least-once
	dead    *place        // where its dead messages go
	source  *place        // whose dead messages come here
	holds   bool          // messages may be held in it
	via     string        // exchange that holds messages before they get here; "" = none

	there  bool         // it is declared, as far as the driver knows
	sure   bool         // that is for certain
	as     mark         // where it is written that it is
	number int          // which queue of that name it is
	id     uint64       // of that one, in the logs
	doomed bool         // somebody deletes it
	shard  uint32       // of its messages
	used   hook.Instant // its lease began then, or later
	busy   int          // consumers
	ended  bool         // its lease may have run out in an earlier life
	open   bool         // via is declared, and bound to it
	log    uint32       // shard of what via holds
}

// over reports whether a place's lease may have run out.
func (p *place) over(now hook.Instant) bool {
	return p.lease > 0 && p.busy == 0 && now >= p.used.Add(p.lease)
}

// mark is a point in a shard's log: what was written before it is there after a loss of power if the log was synced there.
type mark struct {
	shard uint32
	at    uint64
	life  int
}

// message is one that a client published.
type message struct {
	id        uint64
	from      int // the client
	home      *place
	number    int // which queue of that name its home was when it was sent,
	to        int // and when it was confirmed
	shard     uint32
	size      int
	transient bool
	lifetime  time.Duration // its own; 0 = none
	hold      time.Duration // it is not handed out before; 0 = at once
	scheduled bool          // it is an exchange that holds it
	whose     bool          // that has an identity
	single    bool          // what holds it and its home are in one log
	life      int
	sent      hook.Instant // before it was fed to the broker
	confirmed hook.Instant // when that was seen; 0 = never
	lifeEnd   hook.Instant // of one that was never confirmed; 0 = its life goes on
	returned  bool         // it led nowhere

	due     bool // it has to be somewhere
	dueAs   mark
	excused bool // it may be gone, for a reason of its own: its queue was purged or deleted, or went
	acked   *place
	ackedBy *held
	ackLife int
	ackSure bool // and will not come back
	ackAs   mark
	gone    bool // it was in no place at a census
	goneAs  [3]mark
	rejects int
	seen    int  // life in which it was delivered last, or found in a queue
	buried  bool // it was seen where the dead go
	graveAs mark
	holder  *held
	trail   []string
}

// held is a delivery that was not answered.
type held struct {
	m   *message
	c   *client
	ch  uint16
	tag uint64
	at  *place
}

// ledger is what clients did and saw, and what the broker owes them by that.
type ledger struct {
	flush    bool
	bury     bool
	now      func() hook.Instant
	life     int
	faulty   bool         // the disk failed: with flush, what a log was told it has may be gone with what was told of it elsewhere
	latest   hook.Instant // that the broker's clock ever showed
	sealed   int          // lives up to this one are on the disk for good
	reached  map[int]map[uint32]uint64
	last     uint64
	messages map[uint64]*message
	breaches []string
	counts   counts
}

// counts say how much was tried.
type counts struct {
	Sent, Confirmed, Refused, Delivered, Acked, Rejected, Requeued, Expired, Overflown, Orphaned int
	Declared, Deleted, Purged, Leases                                                            int
	Held, Scheduled, Cancelled, TooLate, Discarded                                               int
	PowerLosses, Kills, Stops, Recovering, Changes, Census, Twice, Doubted, Small, Faults        int
}

// add adds what another run tried.
func (c *counts) add(o *counts) {
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(o).Elem()
	for i := range to.NumField() {
		to.Field(i).SetInt(to.Field(i).Int() + from.Field(i).Int())
	}
}

func (m *message) note(l *ledger, format string, args ...any) {
	m.trail = append(m.trail, fmt.Sprintf("%s life %d: ", time.Unix(0, int64(l.now())).UTC().Format("05.000000"), l.life)+fmt.Sprintf(format, args...))
}

func (m *message) String() string {
	return fmt.Sprintf("message %d of client %d in %s/%d (shard %d), due %v, excused %v, transient %v, ttl %v, held for %v (by an exchange: %v)\n\t%s", m.id, m.from,
		m.home.name, m.number, m.shard, m.due, m.excused, m.transient, m.timeAtHome(), m.hold, m.scheduled, strings.Join(m.trail, "\n\t"))
}

// timeAtHome is how long a message may stay where it was published to; 0 = for ever.
func (m *message) timeAtHome() time.Duration {
	if m.lifetime > 0 && (m.home.ttl == 0 || m.lifetime < m.home.ttl) {
		return m.lifetime
	}
	return m.home.ttl
}

// whole reports whether a message moves in one piece, so that it is never in two places.
func (m *message) whole() bool {
	return !m.home.careful && m.number == m.to && (m.home.dead == nil || m.home.dead.shard == m.shard) && (!m.scheduled || m.single)
}

// held reports whether a message may be held at an instant. The broker may have got one that it did not confirm until its life ended.
func (m *message) held(now hook.Instant) bool {
	const slack = 5 * time.Millisecond
	got := m.confirmed
	if got == 0 {
		got = m.lifeEnd
	}
	return m.hold > 0 && (got == 0 || now < got.Add(m.hold+slack))
}

// breach notes that a promise was broken.
func (l *ledger) breach(format string, args ...any) {
	l.breaches = append(l.breaches, fmt.Sprintf("life %d: ", l.life)+fmt.Sprintf(format, args...))
}

// lost reports whether what was written at a mark is not certain to have survived.
func (l *ledger) lost(m mark) bool {
	return l.flush && m.life > l.sealed && m.at > l.reached[m.life][m.shard]
}

// end says that a life ends, and what of each log is on the disk for good.
func (l *ledger) end(reached map[uint32]uint64) {
	l.reached[l.life] = reached
	l.latest = max(l.latest, l.now())
	for _, m := range l.messages {
		if m.confirmed == 0 && m.life == l.life {
			m.to, m.lifeEnd = m.home.number, l.now()
		}
	}
}

// powerLost says that of the lives that are not sealed only that is left.
func (l *ledger) powerLost(places []*place) {
	for _, m := range l.messages {
		l.doubt(m)
	}
	for _, p := range places {
		if p.sure && l.lost(p.as) {
			p.sure = false
		}
	}
}

// doubt takes back what is not certain any more.
func (l *ledger) doubt(m *message) {
	if m.ackSure && l.lost(m.ackAs) {
		m.ackSure = false
	}
	if m.gone && slices.ContainsFunc(m.goneAs[:], l.lost) {
		m.gone, m.excused = false, true
	}
	if !m.due {
		return
	}
	buried := m.buried && !l.lost(m.graveAs)
	if !buried && (l.lost(m.dueAs) || (!m.whole() || l.faulty) && m.mayHaveDied(l.latest)) {
		if l.flush {
			m.due = false
			l.counts.Doubted++
			m.note(l, "in doubt")
		}
	}
}

// mayHaveDied reports whether a message may have been on its way to where the dead go.
func (m *message) mayHaveDied(now hook.Instant) bool {
	t := m.timeAtHome()
	left := m.scheduled && now >= m.sent.Add(m.hold)
	return left || t > 0 && now >= m.sent.Add(t) || m.rejects > 0 || m.home.limit > 0 || m.home.lease > 0
}

// begin says that the broker is up again, with all that is left.
func (l *ledger) begin(places []*place) {
	l.sealed = l.life - 1
	for _, m := range l.messages {
		m.holder = nil
		if m.transient && m.life < l.life {
			m.gone, m.due = !m.scheduled, false // an exchange has on the disk what it holds
		}
	}
	for _, p := range places {
		p.used, p.busy, p.doomed, p.open = l.now(), 0, false, false
	}
}

// confirm says that the broker confirmed a message.
func (l *ledger) confirm(m *message, as mark) {
	l.counts.Confirmed++
	m.confirmed = l.now()
	m.note(l, "confirmed (write %d)", as.at)
	m.to = m.home.number
	late := m.to != m.number || m.home.lease > 0 && m.home.busy == 0 && m.confirmed >= m.home.used.Add(m.home.lease) // its queue may have gone before it came
	m.excused = m.excused || late
	m.due, m.dueAs = !m.transient && !m.returned, as
	if m.returned {
		m.gone = true
	}
}

// bears reports whether a message may be missing.
func (m *message) bears(l *ledger) bool {
	deadless := m.home.dead == nil
	t := m.timeAtHome()
	switch {
	case !m.due, m.excused, m.acked != nil, m.held(l.now()):
		return true
	case deadless && t > 0 && l.latest >= m.sent.Add(t):
		return true
	case deadless && (m.rejects > 0 || m.home.limit > 0):
		return true
	case m.home.lease > 0 && (deadless || !l.bury):
		return m.home.number != m.number || !m.home.there || !m.home.sure
	}
	return false
}

// arrived checks a message that was seen in a place, as a delivery or in a census.
func (l *ledger) arrived(m *message, at *place, reason string) {
	now := l.now()
	l.latest = max(l.latest, now)
	m.seen = l.life
	t := m.timeAtHome()
	switch {
	case m.gone:
		l.breach("came back: seen in %s (%s): %v", at.name, reason, m)
	case m.hold > 0 && l.latest < m.sent.Add(m.hold):
		l.breach("released early: seen in %s (%s): %v", at.name, reason, m)
	case m.ackSure && (m.whole() || at == m.home && m.acked == at && !m.scheduled):
		l.breach("resurrected: seen in %s (%s): %v", at.name, reason, m)
	case m.transient && m.life < l.life && !m.scheduled:
		l.breach("transient, yet it survived: seen in %s: %v", at.name, m)
	case at != m.home && at != m.home.dead:
		l.breach("misrouted: seen in %s: %v", at.name, m)
	case at == m.home && (at.number < m.number || at.number > m.to && m.confirmed != 0):
		l.breach("in a later queue of the same name: seen in %s, declared %d times: %v", at.name, at.number, m)
	case at == m.home && reason != "", at != m.home && reason == "":
		l.breach("%q is no reason to be in %s: %v", reason, at.name, m)
	case at == m.home:
	case reason == "expired" && (t == 0 || l.latest < m.sent.Add(t)):
		l.breach("expired early: seen in %s: %v", at.name, m)
	case reason == "rejected" && m.rejects == 0, reason == "maxlen" && m.home.limit == 0:
		l.breach("dead for no reason: seen in %s (%s): %v", at.name, reason, m)
	case reason == "queue_expired" && (!l.bury || m.home.lease == 0):
		l.breach("dead for no reason: seen in %s (%s): %v", at.name, reason, m)
	}
	switch reason {
	case "expired":
		l.counts.Expired++
	case "maxlen":
		l.counts.Overflown++
	case "queue_expired":
		l.counts.Orphaned++
	}
}

// stock checks what all places hold, when nothing moves: found has, for each message, where it is.
func (l *ledger) stock(found map[uint64][]sight, marks func(*place) mark) {
	l.counts.Census++
	l.latest = max(l.latest, l.now())
	for _, id := range sortedKeys(l.messages) {
		m := l.messages[id]
		in := found[id]
		delete(found, id)
		for _, s := range in {
			l.arrived(m, s.at, s.reason)
		}
		l.count(m, in)
		l.overdue(m, in)
		if len(in) == 0 && !m.bears(l) {
			l.breach("LOST: %v", m)
		}
		l.resolve(m, in, marks)
	}
	for id, in := range found {
		l.breach("nobody sent message %d, in %s", id, in[0].at.name)
	}
}

// sight is a message in a place.
type sight struct {
	at     *place
	reason string
}

// count sees to it that a message is in one place.
func (l *ledger) count(m *message, in []sight) {
	if len(in) < 2 || m.home.careful {
		return
	}
	if m.whole() {
		l.breach("twice: in %s and %s: %v", in[0].at.name, in[1].at.name, m)
		return
	}
	l.counts.Twice++
}

// overdue sees to it that deadlines are kept.
func (l *ledger) overdue(m *message, in []sight) {
	t := m.timeAtHome()
	const slack = 5 * time.Millisecond
	for _, s := range in {
		if s.at == m.home && t > 0 && m.confirmed != 0 && l.now() > m.confirmed.Add(t+slack) {
			l.breach("overdue: seen in %s: %v", s.at.name, m)
		}
	}
}

// resolve takes what a census found for the truth.
func (l *ledger) resolve(m *message, in []sight, marks func(*place) mark) {
	if len(in) == 0 {
		if !m.gone && !m.held(l.now()) {
			m.note(l, "not there")
			m.gone, m.goneAs[0] = true, marks(m.home)
			m.goneAs[1], m.goneAs[2] = m.goneAs[0], marks(&place{}) // the definitions' log
			if m.scheduled {
				m.goneAs[1] = marks(&place{shard: m.home.log})
			}
			if m.home.dead != nil {
				m.goneAs[1] = marks(m.home.dead)
			}
		}
		return
	}
	s := in[0]
	m.note(l, "seen in %s (%s)", s.at.name, s.reason)
	if m.acked != nil && !m.ackSure && m.ackLife < l.life {
		m.acked, m.ackedBy = nil, nil
	}
	if m.transient {
		return
	}
	if s.at != m.home {
		m.buried, m.graveAs = true, marks(s.at)
	}
	if !m.due && m.life < l.life { // what survived once survives
		m.due, m.dueAs = true, mark{}
	}
}

func sortedKeys(m map[uint64]*message) []uint64 {
	ids := make([]uint64, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
