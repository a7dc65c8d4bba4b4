package queue

// cursor is a position among the messages of a queue: from the highest level down, and by
// sequence number in each. It stays valid whatever happens to the queue between two
// calls. It never passes messages that entered after its horizon was taken.
type cursor struct {
	until Horizon
	level int // -1 means the end
	seq   uint64
}

// newCursor returns a cursor at the first message. A zero until stands for the present
// horizon.
func newCursor(q *Queue, until Horizon) cursor {
	if until.next == nil {
		until = q.horizon()
	}
	return cursor{until: until, level: len(until.next) - 1}
}

// seek moves the cursor behind a message.
func (c *cursor) seek(r Ref) {
	if l := r.level(); l < len(c.until.next) {
		c.level, c.seq = l, r.seq()+1
	}
}

func (c *cursor) done() bool { return c.level < 0 }

// inFront reports whether there may be messages at or behind the cursor. It moves the
// cursor to the end if there are none.
func (c *cursor) inFront(q *Queue) bool {
	for ; c.level >= 0; c.level, c.seq = c.level-1, 0 {
		if q.contents == nil || c.level >= len(q.levels) {
			continue
		}
		if seq, s := q.levels[c.level].nextMessage(c.seq); s != nil && seq < c.until.next[c.level] {
			c.seq = seq
			return true
		}
	}
	return false
}

// each calls fn with the messages from the cursor on, until fn returns false, it has
// looked at the given number of slots, or the level ends. The cursor is then behind the
// last message that fn got.
func (c *cursor) each(q *Queue, most int, fn func(h handle) bool) {
	level := c.level
	for looked := 0; looked < most && c.inFront(q) && c.level == level; {
		f := &q.levels[level]
		k, i, _ := f.locate(c.seq)
		end := c.until.next[level]
		for ; i < len(k.slots) && looked < most && k.seq(i) < end; i++ {
			looked++
			if k.slots[i].is(stateFree) {
				continue
			}
			seq := k.seq(i)
			if !fn(handle{ref(level, seq), f, k, i}) {
				c.seq = seq + 1
				return
			}
		}
		if i < len(k.slots) {
			c.seq = k.seq(i)
			continue
		}
		c.seq = (k.number + 1) << chunkBits
	}
}

// nextMessage is messageFrom for lists with long gaps.
func (f *fifo) nextMessage(seq uint64) (uint64, *slot) {
	for i := f.index(seq >> chunkBits); i < len(f.chunks); i++ {
		c := &f.chunks[i]
		k := 0
		if c.number == seq>>chunkBits {
			k = c.index(int(seq & positionMask))
		}
		for ; k < len(c.slots); k++ {
			if !c.slots[k].is(stateFree) {
				return c.seq(k), &c.slots[k]
			}
		}
	}
	return f.next, nil
}
