package route

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
)

// Binding is a destination with the key and the arguments of its binding. The three together are its identity; the order of the
// arguments does not matter.
type Binding[D comparable] struct {
	Destination D
	Key         string
	Args        amqp.Table // sorted by key
}

// Table has the bindings of one exchange. Match, MatchKeys, Has, Len, Of, All and
// Destinations may run concurrently; Add, Remove and RemoveDestination need exclusive
// access. The caller takes the lock.
type Table[D comparable] struct {
	kind     Kind
	bindings map[identity[D]]*binding[D]
	heads    map[D]*binding[D] // the first binding of each destination

	fanout  bindingGroup[D] // the first binding of each destination
	direct  map[string]*bindingGroup[D]
	topic   trie[D]
	headers headersIndex[D]
	numbers numbering[D] // of a plugin's exchange

	seenSets sync.Pool // of map[D]struct{}, for collectors
}

// identity is a map key: equal bindings have equal identities. args is the encoded table, sorted by key, without its length.
type identity[D comparable] struct {
	destination D
	key, args   string
}

// binding is a binding in its table. prev and next link the bindings of one destination. group and slot are its position in a
// bindingGroup; in a headers exchange it has a pattern instead, and in a plugin's exchange slot is the destination's number.
type binding[D comparable] struct {
	identity[D]
	prev, next *binding[D]
	group      *bindingGroup[D]
	slot       int
	pattern    *pattern
}

// New returns an empty table for an exchange of this kind.
func New[D comparable](kind Kind) *Table[D] {
	return &Table[D]{
		kind:     kind,
		bindings: map[identity[D]]*binding[D]{},
		heads:    map[D]*binding[D]{},
		direct:   map[string]*bindingGroup[D]{},
	}
}

// Kind returns the kind of the exchange.
func (t *Table[D]) Kind() Kind { return t.kind }

// Len returns the number of bindings.
func (t *Table[D]) Len() int { return len(t.bindings) }

// Add adds a binding, and reports whether it is new. The arguments must have passed [Validate]; they are not retained.
func (t *Table[D]) Add(key string, args amqp.Table, d D) bool {
	id := identity[D]{d, key, canonical(args)}
	if t.bindings[id] != nil {
		return false
	}
	b := &binding[D]{identity: id}
	t.bindings[id] = b
	t.link(b)
	switch t.kind {
	case Direct:
		group := t.direct[key]
		if group == nil {
			group = new(bindingGroup[D])
			t.direct[key] = group
		}
		group.add(b)
	case Fanout:
		if b.next == nil {
			t.fanout.put(b)
		}
	case Topic:
		t.topic.add(b)
	case Headers:
		t.headers.add(b)
	case Plugin:
		t.numbers.add(b)
	}
	return true
}

// Has reports whether a binding exists.
func (t *Table[D]) Has(key string, args amqp.Table, d D) bool {
	return t.bindings[identity[D]{d, key, canonical(args)}] != nil
}

// Remove removes a binding, and reports whether it existed.
func (t *Table[D]) Remove(key string, args amqp.Table, d D) bool {
	b := t.bindings[identity[D]{d, key, canonical(args)}]
	if b == nil {
		return false
	}
	t.drop(b)
	return true
}

// RemoveDestination removes all bindings of d and returns their number. The cost depends only on that number.
func (t *Table[D]) RemoveDestination(d D) int {
	count := 0
	for b := t.heads[d]; b != nil; b = t.heads[d] {
		t.drop(b)
		count++
	}
	return count
}

// Match appends to dst the destinations of a message with this routing key and these headers, and reports whether there are any.
// It skips destinations that are already in dst. headers may be nil; it is called at most once, and only by a headers exchange. A plugin's
// exchange matches nothing here, see [Table.Translate].
func (t *Table[D]) Match(dst []D, key []byte, headers func() amqp.RawTable) (_ []D, matched bool) {
	g := collector[D]{dst: dst, seenSets: &t.seenSets}
	g = t.match(g, key, headers)
	return g.finish(), g.matched
}

// MatchKeys is Match for a message with more routing keys: a client can put 20,000 of them into a frame. Bindings that match several keys
// are looked at once. seen belongs to dst.
func (t *Table[D]) MatchKeys(dst []D, seen *Seen[D], key []byte, more []string, headers func() amqp.RawTable) (_ []D, matched bool) {
	g := collector[D]{dst: dst, seen: seen.set, inSeen: seen.n, seenSets: &t.seenSets}
	if looksAtKeys := t.kind == Direct || t.kind == Topic; !looksAtKeys {
		more = nil
	}
	if len(more) > 0 {
		g.added = map[*bindingGroup[D]]struct{}{}
	}
	g = t.match(g, key, headers)
	for _, k := range more {
		g = t.match(g, amqp.BytesOf(k), headers)
	}
	seen.set, seen.n = g.seen, g.inSeen
	return g.dst, g.matched
}

// match returns g with the destinations for one key added.
func (t *Table[D]) match(g collector[D], key []byte, headers func() amqp.RawTable) collector[D] {
	switch t.kind {
	case Direct:
		if m := t.direct[string(key)]; m != nil {
			g.addGroup(m)
		}
	case Fanout:
		g.addGroup(&t.fanout)
	case Topic:
		return t.topic.match(g, key)
	case Headers:
		t.headers.match(&g, headers)
	case Plugin:
	}
	return g
}

// All yields all bindings, in no particular order.
func (t *Table[D]) All() iter.Seq[Binding[D]] {
	return func(yield func(Binding[D]) bool) {
		for _, b := range t.bindings {
			if !yield(b.export()) {
				return
			}
		}
	}
}

// Of yields the bindings of d, newest first.
func (t *Table[D]) Of(d D) iter.Seq[Binding[D]] {
	return func(yield func(Binding[D]) bool) {
		for b := t.heads[d]; b != nil; b = b.next {
			if !yield(b.export()) {
				return
			}
		}
	}
}

// Destinations yields each destination that has bindings once, in no particular order.
func (t *Table[D]) Destinations() iter.Seq[D] { return maps.Keys(t.heads) }

func (t *Table[D]) drop(b *binding[D]) {
	delete(t.bindings, b.identity)
	t.unlink(b)
	switch t.kind {
	case Direct:
		group := b.group
		if group.remove(b); len(group.members) == 0 {
			delete(t.direct, b.key)
		}
	case Fanout:
		if b.group == nil { // another binding represents the destination
			break
		}
		t.fanout.take(b)
		if other := t.heads[b.destination]; other != nil {
			t.fanout.put(other)
		}
	case Topic:
		t.topic.remove(b)
	case Headers:
		t.headers.remove(b)
	case Plugin:
		t.numbers.remove(b, t.heads[b.destination] != nil)
	}
}

func (t *Table[D]) link(b *binding[D]) {
	b.next = t.heads[b.destination]
	if b.next != nil {
		b.next.prev = b
	}
	t.heads[b.destination] = b
}

func (t *Table[D]) unlink(b *binding[D]) {
	if b.next != nil {
		b.next.prev = b.prev
	}
	switch {
	case b.prev != nil:
		b.prev.next = b.next
	case b.next != nil:
		t.heads[b.destination] = b.next
	default:
		delete(t.heads, b.destination)
	}
}

func (b *binding[D]) export() Binding[D] {
	// canonical encoded the arguments, so decoding cannot fail.
	args, _ := amqp.RawTable(b.args).Decode()
	return Binding[D]{Destination: b.destination, Key: b.key, Args: args}
}

// canonical encodes arguments so that equal tables give equal strings, whatever their order.
func canonical(args amqp.Table) string {
	if len(args) == 0 {
		return ""
	}
	sorted := slices.Clone(args)
	slices.SortStableFunc(sorted, func(a, b amqp.Field) int { return strings.Compare(a.Key, b.Key) })
	return string(amqp.AppendTable(nil, sorted)[4:])
}
