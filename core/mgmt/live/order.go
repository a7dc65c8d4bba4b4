package live

import (
	"cmp"
	"slices"
	"strings"
)

// Order is how entries are sorted. Those that have no key come last, in either direction.
type Order struct {
	Number  func(*Entry) (n int64, ok bool)
	Text    func(*Entry) string // instead of Number
	Reverse bool
}

// keyed is an entry and what it is sorted by.
type keyed struct {
	number int64
	text   string
	at     int // the entry's place without an order, which decides between equals
}

func (o *Order) compare(a, b keyed) int {
	c := cmp.Or(cmp.Compare(a.number, b.number), strings.Compare(a.text, b.text))
	if o.Reverse {
		c = -c
	}
	return cmp.Or(c, cmp.Compare(a.at, b.at))
}

// Page returns those of all that come after the first from, at most size of them.
func (o *Order) Page(all []*Entry, from, size int) []*Entry {
	if from >= len(all) {
		return nil
	}
	end := min(from+size, len(all))
	if o.Number == nil && o.Text == nil {
		if o.Reverse {
			page := slices.Clone(all[len(all)-end : len(all)-from])
			slices.Reverse(page)
			return page
		}
		return all[from:end]
	}
	first, absent := o.first(all, end)
	page := make([]*Entry, 0, end-from)
	for _, k := range first[min(from, len(first)):] {
		page = append(page, all[k.at])
	}
	for _, at := range absent[max(from-len(first), 0):max(end-len(first), 0)] {
		page = append(page, all[at])
	}
	return page
}

// Keys returns what entries in this order are sorted by, for those who merge them with others in the same order: numbers or texts. It is
// nil for entries that come last.
func (o *Order) Keys(entries []*Entry) []any {
	keys := make([]any, len(entries))
	for i, e := range entries {
		switch {
		case o.Text != nil:
			keys[i] = o.Text(e)
		case o.Number == nil:
			keys[i] = e.Key()
		default:
			if n, ok := o.Number(e); ok {
				keys[i] = n
			}
		}
	}
	return keys
}

// first returns the first n of those that have a key, in order, and the places of those that have none.
func (o *Order) first(all []*Entry, n int) (first []keyed, absent []int) {
	var limit *keyed // the last one of those that are first so far
	for i, e := range all {
		k := keyed{at: i}
		if o.Text != nil {
			k.text = o.Text(e)
		} else {
			var ok bool
			if k.number, ok = o.Number(e); !ok {
				absent = append(absent, i)
				continue
			}
		}
		if limit != nil && o.compare(*limit, k) < 0 {
			continue
		}
		if first = append(first, k); len(first) >= 2*n+few {
			first = o.trim(first, n)
			last := first[n-1]
			limit = &last
		}
	}
	return o.trim(first, n), absent
}

func (o *Order) trim(keys []keyed, n int) []keyed {
	slices.SortFunc(keys, o.compare)
	return keys[:min(n, len(keys))]
}
