package bench

import (
	"sync"
	"time"
)

// Facts about a message.
const (
	confirmed byte = 1 << iota
	refused
	came
)

// ledger records the facts about each message; messages are numbered from 0 in the order of publishing.
type ledger struct {
	mu     sync.Mutex // guards the fields below
	state  []byte
	counts [came + 1]int64 // messages by fact
	both   int64           // confirmed and delivered
	again  int64           // repeated deliveries of a message
}

// publish assigns the next n numbers and returns the first.
func (l *ledger) publish(n int) (first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = uint64(len(l.state))
	l.state = append(l.state, make([]byte, n)...)
	return first
}

// mark records a fact about a message.
func (l *ledger) mark(number uint64, what byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number >= uint64(len(l.state)) {
		return // a message of another run
	}
	s := &l.state[number]
	if *s&what != 0 {
		if what == came {
			l.again++
		}
		return
	}
	*s |= what
	l.counts[what]++
	if what != refused && *s&(confirmed|came) == confirmed|came {
		l.both++
	}
}

func (l *ledger) sent() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.state))
}

func (l *ledger) count(what byte) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[what]
}

func (l *ledger) repeated() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.again
}

// missing returns how many messages were confirmed but not delivered yet.
func (l *ledger) missing() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[confirmed] - l.both
}

// doubtful returns how many messages were neither confirmed nor refused.
func (l *ledger) doubtful() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.state)) - l.counts[confirmed] - l.counts[refused]
}

// unconfirmed tracks which messages of a connection, with delivery tags from 1, wait for a confirm, and has their numbers in the ledger.
type unconfirmed struct {
	l       *ledger
	numbers []uint64 // in the ledger; numbers[0] is that of tag low
	open    []bool   // with the same indexes: not settled yet
	low     uint64   // tag of numbers[0]
	left    int      // how many are open
}

func (u *unconfirmed) send(first uint64, n int) {
	if u.low == 0 {
		u.low = 1
	}
	for i := range n {
		u.numbers = append(u.numbers, first+uint64(i))
		u.open = append(u.open, true)
	}
	u.left += n
}

func (u *unconfirmed) settle(c confirm) {
	what := confirmed
	if c.nack {
		what = refused
	}
	from := c.tag
	if c.multiple {
		from = u.low
		if c.tag == 0 {
			c.tag = u.low + uint64(len(u.numbers)) - 1
		}
	}
	for tag := max(from, u.low); tag <= c.tag && tag < u.low+uint64(len(u.numbers)); tag++ {
		if i := tag - u.low; u.open[i] {
			u.open[i] = false
			u.left--
			u.l.mark(u.numbers[i], what)
		}
	}
	n := 0
	for n < len(u.open) && !u.open[n] {
		n++
	}
	u.numbers, u.open, u.low = u.numbers[n:], u.open[n:], u.low+uint64(n)
}

// pauses measures the longest time between two events.
type pauses struct {
	mu      sync.Mutex // guards the fields below
	latest  int64      // instant of the latest event
	longest int64      // nanoseconds, since the last call of take
}

func (p *pauses) begin(now int64) { p.latest = now }

func (p *pauses) event(now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.longest = max(p.longest, now-p.latest)
	p.latest = now
}

func (p *pauses) since(now int64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(now - p.latest)
}

// take returns the longest pause since its last call, including the one that has not ended yet.
func (p *pauses) take(now int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest := max(p.longest, now-p.latest)
	p.longest = 0
	return longest
}
