package crash

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// ledger is what the clients of a broker did and saw, over all the times that it was started: its lives. It knows by that what
// the broker owes them, and writes down every breach. Any goroutine may use it.
type ledger struct {
	exact bool // all queues lie in one log, so that what moves between them is never in two places
	began time.Time
	clock func() time.Time
	// takeover is how far the broker's time may fall behind when another node takes over.
	takeover time.Duration
	// fills: disks get full, and a broker may refuse to send messages back because of that.
	fills bool

	mu       sync.Mutex // guards what follows, and all messages and sessions
	life     int
	behind   time.Duration // the broker's time may be so far behind that of the clients
	memory   int           // the first life of which the broker still has what is in its memory alone
	ending   bool          // the broker was told to end; see [rule]
	last     uint64
	retired  uint64 // messages up to this one are gone for good
	messages map[uint64]*message
	attended map[*place]int       // the last life in which anyone read from a place
	severed  map[string]time.Time // when those nodes had been cut off from the others, by URL
	breaches []string
	counts   counts
}

// counts say how much was tried.
type counts struct{ sent, redriven, held, scheduled, replaced, cancelled, tooLate, discarded, confirmed, delivered, redelivered, expired, rejected, overflown, acked int }

func newLedger(exact bool) *ledger {
	return &ledger{exact: exact, began: time.Now(), clock: time.Now, messages: map[uint64]*message{}, attended: map[*place]int{}, severed: map[string]time.Time{}}
}

// message is one that a client published.
type message struct {
	id        uint64 // rising
	from      int    // the client
	via       string // where that is connected to
	life      int
	sent      time.Time // before it was published
	confirmed time.Time // after it was confirmed; zero = it was not
	lifetime  time.Duration
	delay     time.Duration // it is not handed out before; 0 = at once
	scheduled bool          // an exchange holds it so long, and not its queue
	priority  uint8
	transient bool
	size      int
	copies    []copied
}

// copied is a message in one of the queues that it was routed to, or on the way from there.
type copied struct {
	*message
	home    *place
	due     bool     // it is durable somewhere, and thus has to be there until it is acknowledged
	rejects int      // how often it was rejected at home
	visits  [2]visit // at home, and where its dead go
	ack     ack
	final   bool // an acknowledgement is known to be durable, whatever came after it
	trail   []step
}

// visit is what is known of deliveries of a copy in one place.
type visit struct {
	count  int
	life   int       // of the last one
	noted  bool      // the log says that it was delivered
	holder *session  // who got it and has not answered
	back   time.Time // when it was given back last, before the broker knew
}

// ack is a copy's acknowledgement. It may get lost with the broker until something after it in the same log is known to be durable.
type ack struct {
	sent, sure bool
	where      *place
	life       int
}

// step is a part of a copy's story.
type step struct {
	at    time.Time
	life  int
	where *place
	what  string
}

func (c *copied) note(at time.Time, life int, where *place, what string) {
	c.trail = append(c.trail, step{at, life, where, what})
}

func (c *copied) visit(p *place) *visit {
	if p == c.home {
		return &c.visits[0]
	}
	return &c.visits[1]
}

// freed reports whether a copy may have been released by now.
func (l *ledger) freed(c *copied, slack time.Duration) bool {
	return !l.clock().Add(slack).Before(c.sent.Add(c.delay))
}

func (c *copied) held() bool { return c.visits[0].holder != nil || c.visits[1].holder != nil }

// timeAtHome is how long the copy may stay where it was routed to; 0 = for ever.
func (c *copied) timeAtHome() time.Duration {
	if c.lifetime > 0 && (c.home.ttl == 0 || c.lifetime < c.home.ttl) {
		return c.lifetime
	}
	return c.home.ttl
}

func (c *copied) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "message %d from client %d in %s", c.id, c.from, c.home.name)
	if c.transient {
		b.WriteString(", transient")
	}
	if t := c.timeAtHome(); t > 0 {
		fmt.Fprintf(&b, ", expires after %v", t)
	}
	if c.delay > 0 {
		fmt.Fprintf(&b, ", held for %v (by an exchange: %v)", c.delay, c.scheduled)
	}
	for _, s := range c.trail {
		fmt.Fprintf(&b, "\n\t%s life %d: %s", s.at.Format("05.000000"), s.life, s.what)
		if s.where != nil {
			fmt.Fprintf(&b, " (%s)", s.where.name)
		}
	}
	return b.String()
}

// session is one client reading from one place, until it closes its channel.
type session struct {
	place  *place
	opened time.Time // before anything could be delivered
	rest   bool      // nobody else is at work since the broker started
	before int       // the last life in which anyone read from the place
	order  map[lane]uint64
}

// lane is messages that stay in order.
type lane struct {
	from     int
	home     *place
	priority uint8
}

// arrival is a delivery as the client sees it.
type arrival struct {
	id          uint64
	damaged     string // what is wrong with its body or its properties
	redelivered bool
	reason      string // of its last death; "" = it is alive
	rejections  int    // at home, as its headers say
	at          time.Time
}

// begin says that the broker starts again.
func (l *ledger) begin() {
	l.resume()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memory = l.life
}

// resume says that all clients are gone, and that the broker may be another one, or may not: a cluster need not lose what is in the
// memory of a node when another one fails. It is a new life.
func (l *ledger) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.life++
	l.behind += l.takeover
	l.ending = false
	clear(l.severed)
	for c := range l.copies {
		c.visits[0].holder, c.visits[1].holder = nil, nil
		if c.transient && l.freed(c, l.slack()) { // an exchange has everything on the disk, a queue has not
			c.due = false
		}
	}
}

// end says that the broker is about to be told to end.
func (l *ledger) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = true
}

// sever says that a node was cut off from the others: it has no majority, and what is sent to it from now on it must not confirm.
func (l *ledger) sever(url string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.severed[url] = at
}

// takeOver says that another node may serve the clients that come from now on, before those of the former one are gone.
func (l *ledger) takeOver() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.behind += l.takeover
}

func (l *ledger) isEnding() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ending
}

// ended says that the broker has ended by itself, after everything that its clients sent had reached it and was answered.
func (l *ledger) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.copies {
		c.ack.sure = c.ack.sent
		for i := range c.visits {
			c.visits[i].noted = c.visits[i].count > 0
		}
	}
}

// copies yields all of them. The caller holds mu.
func (l *ledger) copies(yield func(*copied) bool) {
	for _, m := range l.messages {
		for i := range m.copies {
			if !yield(&m.copies[i]) {
				return
			}
		}
	}
}

// send enters a message that a client is about to publish.
func (l *ledger) send(m message, to []*place, at time.Time) *message {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	m.id, m.life, m.sent = l.last, l.life, at
	sent := &m
	for _, p := range to {
		sent.copies = append(sent.copies, copied{message: sent, home: p})
	}
	for i := range sent.copies {
		sent.copies[i].note(at, l.life, nil, "sent")
	}
	l.messages[m.id] = sent
	l.counts.sent++
	if m.delay > 0 {
		l.counts.held++
	}
	return sent
}

// confirm says that the broker confirmed a message.
func (l *ledger) confirm(m *message, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since, ok := l.severed[m.via]; ok && m.sent.After(since) && (!m.transient || m.scheduled) { // what no other node gets waits for none
		l.breach("confirmed by a minority, which was cut off at %s: message %d from client %d, sent %s", since.Format("05.000000"), m.id, m.from, m.sent.Format("05.000000"))
	}
	if !m.confirmed.IsZero() {
		l.breach("confirmed twice: message %d from client %d", m.id, m.from)
	}
	m.confirmed = at
	for i := range m.copies {
		c := &m.copies[i]
		c.due = !m.transient || m.scheduled
		c.note(at, l.life, nil, "confirmed")
	}
	l.counts.confirmed++
}

// open enters a client that is about to read from a place.
func (l *ledger) open(p *place, rest bool, at time.Time) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &session{place: p, opened: at, rest: rest, before: l.attended[p], order: map[lane]uint64{}}
	l.attended[p] = l.life
	return s
}

// ask says that a client is about to ask for a message, after the last one that it asked for has come.
func (l *ledger) ask(s *session, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.opened = at
}

// deliver enters a delivery, nil if the ledger does not know the message.
func (l *ledger) deliver(s *session, d arrival) *copied {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.delivered++
	c := l.find(s, d)
	if c == nil {
		return nil
	}
	for _, r := range rules {
		if r.broken(l, c, s, &d) {
			l.breach("%s: delivered from %s (%v): %v", r.name, s.place.name, d, c)
		}
	}
	l.count(&d)
	l.take(c, s, &d)
	return c
}

func (l *ledger) find(s *session, d arrival) *copied {
	m := l.messages[d.id]
	if m == nil {
		l.breach("message %d came to %s; there are %d to %d", d.id, s.place.name, l.retired+1, l.last)
		return nil
	}
	for i := range m.copies {
		if c := &m.copies[i]; c.home == s.place || c.home.dead == s.place {
			return c
		}
	}
	l.breach("misrouted: delivered from %s (%v): %v", s.place.name, d, &m.copies[0])
	return nil
}

func (l *ledger) count(d *arrival) {
	if d.redelivered {
		l.counts.redelivered++
	}
	switch d.reason {
	case "expired":
		l.counts.expired++
	case "rejected":
		l.counts.rejected++
	case "maxlen":
		l.counts.overflown++
	}
}

// take puts a copy in a client's hands.
func (l *ledger) take(c *copied, s *session, d *arrival) {
	what := "delivered"
	if d.redelivered {
		what += " again"
	}
	if d.reason != "" {
		what += ", " + d.reason
	}
	c.note(d.at, l.life, s.place, what)
	if in, ok := l.laneOf(c, s, d); ok {
		s.order[in] = c.id
	}
	v := c.visit(s.place)
	v.count, v.life, v.holder = v.count+1, l.life, s
	// A broker that ends takes back what lies in a client's library. Another client may have acknowledged that by now.
	late := l.ending && c.ack.sent && c.ack.life == l.life
	if !late && (l.whole(c) || c.ack.where == s.place && !c.ack.sure) {
		c.ack = ack{} // it was lost
	}
	c.due = c.due || s.rest && !c.transient // what survived once is durable
}

// acknowledge says that a client is about to acknowledge a copy.
func (l *ledger) acknowledge(s *session, c *copied, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(s, c, at, "acked")
	c.ack = ack{sent: true, where: s.place, life: l.life}
	l.counts.acked++
}

// reject says that a client is about to reject a copy, which kills it.
func (l *ledger) reject(s *session, c *copied, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(s, c, at, "rejected")
	c.rejects++
}

// requeue says that a client is about to return copies, or to close its channel.
func (l *ledger) giveBack(s *session, cs []*copied, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range cs {
		l.release(s, c, at, "given back")
		c.visit(s.place).back = at
	}
}

// release takes a copy out of a client's hands. The caller holds mu.
func (l *ledger) release(s *session, c *copied, at time.Time, what string) {
	c.note(at, l.life, s.place, what)
	if v := c.visit(s.place); v.holder == s {
		v.holder = nil
	}
}

// evidence is what is durable when a message is that was published later to the same queue, on the same channel.
type evidence struct {
	seen, acked []*copied
	at          *place
}

// prove says that it is. The broker has not started again in between.
func (l *ledger) prove(e *evidence, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range e.seen {
		c.visit(e.at).noted = true
	}
	for _, c := range e.acked {
		if c.ack.sent && c.ack.where == e.at {
			if c.final && l.whole(c) {
				l.breach("settled twice, by two owners: %v", c)
			}
			c.ack.sure, c.final = true, true
			c.note(at, l.life, e.at, "surely acked")
		}
	}
}

// missing lists what is neither acknowledged nor in anyone's hands, though it has to be there. It is for when a client has
// fetched everything there is.
func (l *ledger) missing() (cs []*copied) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.copies {
		if c.due && !c.ack.sent && !c.held() && l.freed(c, 0) {
			cs = append(cs, c)
		}
	}
	return cs
}

// pending returns how long messages are held yet, those that were not confirmed among them.
func (l *ledger) pending() (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.messages {
		longest = max(longest, m.sent.Add(m.delay).Sub(l.clock()))
	}
	return longest
}

// lost enters as breaches what does not turn up.
func (l *ledger) lost(cs []*copied) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.SortFunc(cs, func(a, b *copied) int { return int(a.id) - int(b.id) })
	for _, c := range cs {
		l.breach("lost: %v", c)
	}
}

// retire forgets all messages. Every queue is known to be empty, for good.
func (l *ledger) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.messages)
	l.retired = l.last
}

// complain enters a breach that a client noticed.
func (l *ledger) complain(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breach(format, args...)
}

// breach adds a breach. The caller holds mu.
func (l *ledger) breach(format string, args ...any) {
	l.breaches = append(l.breaches, fmt.Sprintf("life %d: ", l.life)+fmt.Sprintf(format, args...))
}
