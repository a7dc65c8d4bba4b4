package metrics

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/curfewmq/curfew/core/queue"
)

// seriesSelector selects the queues that have series of their own: all queues if they are
// few enough, otherwise the queues that were busiest at the last collection. A queue's
// business is the number of its messages plus the messages that went through since the
// collection before. A queue that has series keeps them unless others are at least twice as
// busy, so that series do not come and go. Ties are decided by name.
type seriesSelector struct {
	limit     int              // how many queues may have series
	mailboxes []*queue.Mailbox // kept for its memory

	shown      map[*queue.Mailbox]*Labels  // queues that have series
	known      map[*queue.Mailbox]activity // all queues, while they are too many; otherwise empty
	collection uint64                      // number of the present collection
	seen       int                         // number of queues in the present collection
	rest       uint64                      // messages published to queues while they had no series
	best       ranks
}

// activity holds the counts of a queue at its last collection.
type activity struct {
	passed, published uint64 // messages that went through so far, and those that clients published
	collection        uint64 // the last one that included the queue
}

// tooMany reports whether only some of this number of queues get series.
func (p *seriesSelector) tooMany(queues int) bool { return p.limit > 0 && queues > p.limit }

// labels returns the labels of a queue's series; nil if it has none.
func (p *seriesSelector) labels(m *queue.Mailbox) *Labels { return p.shown[m] }

// see records how busy a queue is.
func (p *seriesSelector) see(m *queue.Mailbox, s *queue.Stats) {
	if p.known == nil {
		p.known = map[*queue.Mailbox]activity{}
	}
	before, shown := p.known[m], p.shown[m] != nil
	now := activity{passed: s.Published + s.Delivered + s.DeliveredNoAck, published: s.FromClients(), collection: p.collection}
	p.known[m] = now
	p.seen++
	if len(p.shown) > 0 && !shown {
		p.rest += now.published - before.published
	}
	// Ranks are powers of two. A queue that has series ranks one and a half steps higher: one with 1,000 messages (10 bits) keeps
	// its series until others have 2,048 (12 bits).
	r := rank{mailbox: m, config: m.Config(), busy: 2 * bits.Len64(uint64(s.Ready+s.Unacked)+now.passed-before.passed)}
	if shown {
		r.busy += 2 + 1
	}
	p.best.offer(r, p.limit)
}

// choose gives series to the busiest queues that were seen, and begins the next collection.
func (p *seriesSelector) choose() {
	if len(p.known) > p.seen {
		for m, a := range p.known {
			if a.collection != p.collection {
				delete(p.known, m)
			}
		}
	}
	p.best.trim(p.limit)
	shown := make(map[*queue.Mailbox]*Labels, len(p.best))
	for i := range p.best {
		m := p.best[i].mailbox
		shown[m] = p.labelsOf(m)
	}
	clear(p.best)
	p.shown, p.best, p.seen = shown, p.best[:0], 0
	p.collection++
}

// showAll gives series to exactly these queues.
func (p *seriesSelector) showAll(all []*queue.Mailbox) {
	shown := make(map[*queue.Mailbox]*Labels, len(all))
	for _, m := range all {
		shown[m] = p.labelsOf(m)
	}
	p.shown, p.known = shown, nil
}

// labelsOf returns the present labels of a queue, or new ones.
func (p *seriesSelector) labelsOf(m *queue.Mailbox) *Labels {
	if l := p.shown[m]; l != nil {
		return l
	}
	return label("vhost", m.Config().VHost, "queue", m.Config().Name)
}

// rank is how busy a queue is.
type rank struct {
	mailbox *queue.Mailbox
	config  *queue.Config
	busy    int
}

func (r *rank) compare(o *rank) int {
	return cmp.Or(cmp.Compare(o.busy, r.busy), cmp.Compare(r.config.VHost, o.config.VHost), cmp.Compare(r.config.Name, o.config.Name))
}

// ranks keeps the best of the offered ranks. When there are as many as wanted they are sorted; up to as many
// again may follow that were offered later.
type ranks []rank

func (r *ranks) offer(n rank, limit int) {
	if len(*r) >= limit && n.compare(&(*r)[limit-1]) > 0 {
		return
	}
	if *r = append(*r, n); len(*r)%limit == 0 {
		r.trim(limit)
	}
}

// trim drops all except the best ranks.
func (r *ranks) trim(limit int) {
	slices.SortFunc(*r, func(a, b rank) int { return a.compare(&b) })
	if len(*r) > limit {
		clear((*r)[limit:])
		*r = (*r)[:limit]
	}
}
