package queue

// refIndex says where in a list messages are. Their numbers come in long runs, so
// it is much smaller and faster than a map of each.
type refIndex struct {
	pages map[Ref]*refPage
	last  *refPage // the one used last, with the number lastN
	lastN Ref
	size  int
}

// refPage is for the messages whose numbers differ in the last bits only.
type refPage struct {
	at [1 << pageBits]int32 // place + 1; 0 = there is no such message
	n  int
}

const pageBits = 8

// find returns the page that a message is on, nil if there is none.
func (p *refIndex) find(r Ref) *refPage {
	n := r >> pageBits
	if p.last == nil || p.lastN != n {
		p.last, p.lastN = p.pages[n], n
	}
	return p.last
}

func (p *refIndex) get(r Ref) (place int32, ok bool) {
	g := p.find(r)
	if g == nil {
		return 0, false
	}
	at := g.at[r%(1<<pageBits)]
	return at - 1, at != 0
}

// add adds a message that is not there.
func (p *refIndex) add(r Ref, place int32) {
	g := p.find(r)
	if g == nil {
		g = new(refPage)
		if p.pages == nil {
			p.pages = map[Ref]*refPage{}
		}
		p.pages[r>>pageBits], p.last = g, g
	}
	g.at[r%(1<<pageBits)] = place + 1
	g.n++
	p.size++
}

// remove takes out a message and returns its place, if it is there.
func (p *refIndex) remove(r Ref) (place int32, ok bool) {
	if place, ok = p.get(r); !ok {
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
	return place, true
}

// removeRun takes out the messages in a row that are there, and hands their places
// to fn.
func (p *refIndex) removeRun(first, count Ref, fn func(place int32)) {
	if count <= Ref(p.size) {
		for r := range count {
			if place, ok := p.remove(first + r); ok {
				fn(place)
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
			if place, ok := p.remove(r); ok {
				fn(place)
			}
		}
	}
}
