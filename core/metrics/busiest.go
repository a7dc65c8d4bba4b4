package metrics

import (
	"cmp"
	"math/bits"

	"github.com/curfewmq/curfew/core/queue"
)

// seriesSelector is the queues there are, and which of them have series of their own: all, if they are few enough, or else the
// busiest at the last look. A queue is as busy as it has messages, and had messages go through since the look before, if there was one; one that
// has series keeps them unless others are at least twice as busy, so that they do not come and go. Ties go by name.
type seriesSelector struct {
	limit  int              // how many may have series of their own
	shells []*queue.Mailbox // kept for its memory

	shown map[*queue.Mailbox]*Labels // those that have
	known map[*queue.Mailbox]member  // all, while they are too many; else empty
	look  uint64                     // number of the present one
	seen  int                        // queues, in it
	rest  uint64                     // messages published to queues while they were not shown
	best  ranks                      // of them
}

// member is what is remembered of a queue from one look to the next.
type member struct {
	passed, published uint64 // messages that went through so far, and that clients published
	look              uint64 // when it was last seen
}

// many reports whether so many queues are too many for all of them to be shown, but not so that none is.
func (p *seriesSelector) many(queues int) bool { return p.limit > 0 && queues > p.limit }

// labels returns the labels of a queue's series; nil if it has none.
func (p *seriesSelector) labels(s *queue.Mailbox) *Labels { return p.shown[s] }

// see takes note of how busy a queue is.
func (p *seriesSelector) see(s *queue.Mailbox, q *queue.Stats) {
	if p.known == nil {
		p.known = map[*queue.Mailbox]member{}
	}
	passed := q.Published + q.Delivered + q.DeliveredNoAck
	was := p.known[s]
	published := q.FromClients()
	p.known[s] = member{passed: passed, published: published, look: p.look}
	p.seen++
	if len(p.shown) > 0 && p.shown[s] == nil {
		p.rest += published - was.published
	}
	busy := uint64(q.Ready+q.Unacked) + passed - was.passed
	r := rank{shell: s, config: s.Config(), busy: bits.Len64(busy)}
	if p.shown[s] != nil {
		r.old = true
		r.busy++
	}
	p.best.offer(r, p.limit)
}

// choose has the busiest of the queues that were seen shown from now on, and begins the next look.
func (p *seriesSelector) choose() {
	if len(p.known) > p.seen {
		for s, m := range p.known {
			if m.look != p.look {
				delete(p.known, s)
			}
		}
	}
	shown := make(map[*queue.Mailbox]*Labels, len(p.best))
	for i := range p.best {
		r := &p.best[i]
		if shown[r.shell] = p.shown[r.shell]; !r.old {
			shown[r.shell] = labelsOf(r.config)
		}
	}
	clear(p.best)
	p.shown, p.best, p.seen = shown, p.best[:0], 0
	p.look++
}

// showAll has these queues shown, and no other.
func (p *seriesSelector) showAll(queues []*queue.Mailbox) {
	shown := make(map[*queue.Mailbox]*Labels, len(queues))
	for _, s := range queues {
		if shown[s] = p.shown[s]; shown[s] == nil {
			shown[s] = labelsOf(s.Config())
		}
	}
	p.shown, p.known = shown, nil
}

func labelsOf(c *queue.Config) *Labels { return label("vhost", c.VHost, "queue", c.Name) }

// rank is what places a queue among others.
type rank struct {
	shell  *queue.Mailbox
	config *queue.Config
	busy   int // in powers of two; one more for who is shown already
	old    bool
}

// before reports whether the queue is to be shown rather than another.
func (r *rank) before(o *rank) bool {
	switch {
	case r.busy != o.busy:
		return r.busy > o.busy
	case r.old != o.old:
		return r.old
	}
	return cmp.Or(cmp.Compare(r.config.VHost, o.config.VHost), cmp.Compare(r.config.Name, o.config.Name)) < 0
}

// ranks is a heap, the last of them first.
type ranks []rank

// offer takes a queue in if it is among the first limit.
func (r *ranks) offer(n rank, limit int) {
	switch {
	case len(*r) < limit:
		*r = append(*r, n)
		r.up(len(*r) - 1)
	case n.before(&(*r)[0]):
		(*r)[0] = n
		r.down(0)
	}
}

func (r ranks) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !r[parent].before(&r[i]) {
			return
		}
		r[i], r[parent] = r[parent], r[i]
		i = parent
	}
}

func (r ranks) down(i int) {
	for {
		last := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(r); child++ {
			if r[last].before(&r[child]) {
				last = child
			}
		}
		if last == i {
			return
		}
		r[i], r[last] = r[last], r[i]
		i = last
	}
}
