package live

import (
	"slices"

	"github.com/curfewmq/curfew/core/report"
)

// Order is how entries are sorted. Those that have no key come last, in either direction.
type Order struct {
	Number  func(*Entry) (n int64, ok bool)
	Text    func(*Entry) string // instead of Number
	Reverse bool
}

// Page returns those of all that come after the first from, at most size of them, and what they are sorted by, as values of JSON: the page may
// be merged with those of other nodes.
func (o *Order) Page(all []*Entry, from, size int) (page []*Entry, keys []any) {
	if o.Number == nil && o.Text == nil {
		page = o.own(all, from, size)
		for _, e := range page {
			keys = append(keys, e.Key())
		}
		return page, keys
	}
	first := report.Order{Reverse: o.Reverse, AbsentLast: true, Steady: true}.First(len(all), from+size, func(at int) report.Key { return o.key(all[at]) })
	for _, p := range first[min(from, len(first)):] {
		page, keys = append(page, all[p.At]), append(keys, p.Key.Value())
	}
	return page, keys
}

// own is a page of entries in their own order.
func (o *Order) own(all []*Entry, from, size int) []*Entry {
	from, end := min(from, len(all)), min(from+size, len(all))
	if !o.Reverse {
		return all[from:end]
	}
	page := slices.Clone(all[len(all)-end : len(all)-from])
	slices.Reverse(page)
	return page
}

func (o *Order) key(e *Entry) report.Key {
	if o.Text != nil {
		return report.KeyOf(o.Text(e))
	}
	if n, ok := o.Number(e); ok {
		return report.KeyOf(n)
	}
	return report.Key{}
}
