package amqp

// Names is a set of keys that are looked up together, in one pass over a table. It does not change.
type Names struct {
	keys    []string
	lengths uint64 // a bit for each length of a key; the last one stands for all longer keys
}

// NewNames returns Names with these keys, which must be different.
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

// Find sets found[i] to the first field with the i-th key of the names, and reports whether it found any. Elements without a field stay
// unchanged. It does not allocate.
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
