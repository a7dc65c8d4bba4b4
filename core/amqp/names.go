package amqp

// Names are keys that are looked for together, in one pass over a table. They do not change.
type Names struct {
	keys    []string
	lengths uint64 // a bit for each length of a key; the last one means all that are longer
}

// NewNames returns the names of these keys, which are different.
func NewNames(keys ...string) *Names {
	n := &Names{keys: keys}
	for _, k := range keys {
		n.lengths |= lengthBit(len(k))
	}
	return n
}

func lengthBit(n int) uint64 { return 1 << min(n, 63) }

// Len returns the number of keys.
func (n *Names) Len() int { return len(n.keys) }

// Find sets found[i] to the first field with the i-th of the names' keys, and reports whether there is any field with one of them.
// The others stay as they are. It does not allocate.
func (t RawTable) Find(n *Names, found []RawField) (some bool) {
	for rest := t; len(rest) > 0; {
		k, kind, val, size, err := cutField(rest)
		if err != nil {
			return some
		}
		if n.lengths&lengthBit(len(k)) != 0 {
			some = n.match(RawField{k, kind, val}, found) || some
		}
		rest = rest[size:]
	}
	return some
}

func (n *Names) match(f RawField, found []RawField) bool {
	for i, key := range n.keys {
		if string(f.Key) != key {
			continue
		}
		if found[i].Key == nil {
			found[i] = f
		}
		return true
	}
	return false
}
