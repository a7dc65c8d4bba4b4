package queue

// refIndex maps messages to their indexes in a list. References come in long runs, so it
// is much smaller and faster than a map.
type refIndex struct {
	pages map[Ref]*refPage
	last  *refPage // the page used last, with the number lastN
	lastN Ref
	size  int
}

// refPage holds the messages whose references differ in the last bits only.
type refPage struct {
	at [1 << pageBits]int32 // index + 1; 0 means that there is no such message
	n  int
}

const pageBits = 8

// find returns the page of a message, nil if there is none.
func (p *refIndex) find(r Ref) *refPage {
	n := r >> pageBits
	if p.last == nil || p.lastN != n {
		p.last, p.lastN = p.pages[n], n
	}
	return p.last
}

func (p *refIndex) get(r Ref) (index int32, ok bool) {
	g := p.find(r)
	if g == nil {
		return 0, false
	}
	at := g.at[r%(1<<pageBits)]
	return at - 1, at != 0
}

// add adds a message that is not there.
func (p *refIndex) add(r Ref, index int32) {
	g := p.find(r)
	if g == nil {
		g = new(refPage)
		if p.pages == nil {
			p.pages = map[Ref]*refPage{}
		}
		p.pages[r>>pageBits], p.last = g, g
	}
	g.at[r%(1<<pageBits)] = index + 1
	g.n++
	p.size++
}

// remove removes a message and returns its index, if it is there.
func (p *refIndex) remove(r Ref) (index int32, ok bool) {
	if index, ok = p.get(r); !ok {
		return 0, false
	}
	g := p.last
	g.at[r%(1<<pageBits)] = 0
	g.n--
	p.size--
	if g.n == 0 {
		delete(p.pages, p.lastN)
		p.last = nil
	}
	return index, true
}

// removeRun removes those of count consecutive messages that are there, and calls fn
// with their indexes.
func (p *refIndex) removeRun(first, count Ref, fn func(index int32)) {
	if count <= Ref(p.size) {
		for r := range count {
			if index, ok := p.remove(first + r); ok {
				fn(index)
			}
		}
		return
	}
	for n := range p.pages {
		for i := range Ref(1 << pageBits) {
			r := n<<pageBits | i
			if r-first >= count {
				continue
			}
			if index, ok := p.remove(r); ok {
				fn(index)
			}
		}
	}
}

// move changes the index of a message that is there.
func (p *refIndex) move(r Ref, index int32) { p.find(r).at[r%(1<<pageBits)] = index + 1 }
