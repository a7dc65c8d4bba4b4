package live

import (
	"slices"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/rows"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Order says how entries are sorted.
type Order struct {
	// Key returns a number or a text. Entries with the key nil come last, in either direction. Without Key, entries are in their own order.
	Key     func(*Entry) any
	Reverse bool
}

// InstantKey returns a key that is an instant; nil for none.
func InstantKey(at hook.Instant) any {
	if at == 0 {
		return nil
	}
	return int64(at)
}

// ByNext is a key: the next instant at which a message expires or is released.
func ByNext(e *Entry) any { return InstantKey(earlier(e.Stats.NextDeadline, e.Stats.NextRelease)) }

// Page returns at most size entries behind the first from, in order, and their sort keys as JSON values. The node that merges pages of
// several nodes needs the keys.
func (o *Order) Page(all []*Entry, from, size int) (page []*Entry, keys []any) {
	if o.Key == nil {
		page = o.own(all, from, size)
		for _, e := range page {
			keys = append(keys, e.Key())
		}
		return page, keys
	}
	first := rows.Order{Reverse: o.Reverse, AbsentLast: true, Steady: true}.First(len(all), from+size, func(at int) any { return o.Key(all[at]) })
	for _, p := range first[min(from, len(first)):] {
		page, keys = append(page, all[p.At]), append(keys, p.Key)
	}
	return page, keys
}

// KeysMember holds the sort keys of a state's rows, in their order; null for rows that come last. Only the node that merges states gets it,
// readers do not.
const KeysMember = "keys"

// Rows returns the members that show a page of entries: the rows by their keys, and their order.
func (o *Order) Rows(all []*Entry, page, size int, row func(*Entry) jsonobj.Object) jsonobj.Object {
	entries, keys := o.Page(all, (page-1)*size, size)
	rows, order := object{}, []string{}
	for _, e := range entries {
		rows.Add(e.Key(), row(e))
		order = append(order, e.Key())
	}
	return object{{"rows", rows}, {"order", order}, {KeysMember, keys}}
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
