package mgmt

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/replicas"
)

// A page far from the beginning of a merged list could be on any node. Instead of all items before it, nodes send what they are sorted
// by, equal ones as one; from that it is known which items of each node are on the page, and just those are asked for. A list that changes
// between both questions may show an item on two pages or on none, as it may when pages are asked for one after the other.

// deepPage is the last item up to which nodes send all items until the end of a page.
const deepPage = 500

// Headers of requests for parts of lists.
const (
	keysHeader  = "Curfew-Keys"  // what items are sorted by is asked for
	rangeHeader = "Curfew-Range" // these items are asked for: "FROM-TO", without TO
)

// asksKeys reports whether a request for a part asks what the items are sorted by.
func (c *request) asksKeys() bool { return c.part && c.r.Header.Get(keysHeader) != "" }

// sendKeys answers with what the items are sorted by: [{"n": 3, "key": …, "natural": …}, …], where n says of how many items.
func (l *listing[T]) sendKeys(c *request) {
	q, m := &c.query, c.order
	q.columns = nil // these were those that are needed
	c.streamObjects(func(yield func(object) bool) {
		n, key, natural := 0, any(nil), any(nil)
		send := func() bool { return n == 0 || yield(object{{"n", n}, {"key", key}, {"natural", natural}}) }
		for _, it := range l.items {
			var nextKey, nextNatural any
			if q.sort != nil {
				nextKey = l.key(it, q.sort)
			}
			if m.natural != nil {
				nextNatural = l.key(it, m.natural)
			}
			if n > 0 && (compareValues(key, nextKey) != 0 || compareValues(natural, nextNatural) != 0) {
				if !send() {
					return
				}
				n = 0
			}
			n, key, natural = n+1, nextKey, nextNatural
		}
		send()
	})
}

// itemRange is some of a node's items, in their order.
type itemRange struct{ from, to int }

func (r itemRange) String() string { return fmt.Sprintf("%d-%d", r.from, r.to) }

func readRange(text string) (r itemRange, err error) {
	from, to, _ := strings.Cut(text, "-")
	var bad error
	r.from, err = strconv.Atoi(from)
	if r.to, bad = strconv.Atoi(to); err != nil || bad != nil || r.from < 0 || r.to < r.from {
		return r, badRequest("header %s: %.40q is not FROM-TO", rangeHeader, text)
	}
	return r, nil
}

// answerDeep answers with a page that is far from the beginning.
func (m *listMerge) answerDeep(c *request, e *endpoint) error {
	keys := func(string) map[string]string { return map[string]string{keysHeader: "1"} }
	g, ok, err := c.gather(e, question{long: true, headers: keys})
	if !ok {
		return err
	}
	if err := g.checkServed(); err != nil {
		return err
	}
	all := m.merger(g, true)
	filtered, total := all.counts()
	p, err := c.query.pageOf(filtered)
	if err != nil {
		return err
	}
	ranges := all.ranges(p.from, c.query.size)
	if broken := all.broken(g); broken != nil {
		return broken
	}
	c.holding.closeStreams()
	if g.parts, err = c.askRanges(e, g, ranges); err != nil {
		return err
	}
	all = m.merger(g, false)
	g.mark()
	return all.reply(g, &p, total)
}

// ranges returns which items of each node are those from one on, up to as many.
func (m *merger) ranges(from, most int) map[string]itemRange {
	all := map[string]itemRange{}
	for pos := 0; pos < from+most; {
		r := m.first()
		if r == nil {
			break
		}
		n := max(int(intOf(valueOf(r.head, "n"))), 1)
		taken := min(n-r.used, from+most-pos)
		own := all[r.node.Name]
		own.to += taken
		own.from += min(taken, max(from-pos, 0))
		all[r.node.Name] = own
		pos += taken
		if r.used += taken; r.used == n {
			r.used = 0
			m.advance(r)
		}
	}
	return all
}

// askRanges asks those nodes for their items that have some.
func (c *request) askRanges(e *endpoint, g *gathering, ranges map[string]itemRange) ([]part, error) {
	q := &question{merged: true, long: true, headers: func(node string) map[string]string {
		return map[string]string{rangeHeader: ranges[node].String()}
	}}
	var others []replicas.Node
	asked := make([]part, 0, len(g.parts))
	for i := range g.parts {
		n := &g.parts[i].node
		if r := ranges[n.Name]; r.to == r.from {
			continue
		}
		if !c.api.isSelf(n) {
			others = append(others, *n)
			continue
		}
		own, err := c.askSelf(e, q)
		if err != nil {
			return nil, err
		}
		asked = append(asked, *own)
	}
	theirs, missing := c.askNodes(others, q)
	g.missing = append(g.missing, missing...)
	return g.inOrder(append(asked, theirs...)), nil
}
