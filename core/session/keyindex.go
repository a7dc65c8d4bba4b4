package session

// keyIndex numbers keys in the order they come. Few are searched one by one, many have an index.
type keyIndex[K comparable] struct {
	keys  []K
	index map[K]int // once they are many
	last  int       // the place that was asked for last, while there is one
}

// linearKeys is how many keys are searched one by one.
const linearKeys = 16

// find returns the place of a key; added says that it is new.
func (p *keyIndex[K]) find(k K) (place int, added bool) {
	if p.last < len(p.keys) && p.keys[p.last] == k {
		return p.last, false
	}
	if i, ok := p.search(k); ok {
		p.last = i
		return i, false
	}
	p.last = len(p.keys)
	p.keys = append(p.keys, k)
	if p.index != nil {
		p.index[k] = p.last
	}
	return p.last, true
}

func (p *keyIndex[K]) search(k K) (int, bool) {
	if p.index == nil && len(p.keys) >= linearKeys {
		p.index = make(map[K]int, 2*linearKeys)
		for i := range p.keys {
			p.index[p.keys[i]] = i
		}
	}
	if p.index != nil {
		i, ok := p.index[k]
		return i, ok
	}
	for i := range p.keys {
		if p.keys[i] == k {
			return i, true
		}
	}
	return 0, false
}

// reset forgets all keys.
func (p *keyIndex[K]) reset() {
	clear(p.keys)
	p.keys, p.index = p.keys[:0], nil
}
