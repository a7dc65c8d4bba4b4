package auth

import (
	"slices"
	"sync"
	"time"
)

// gate schedules password checks. It runs few at a time, because each takes a tenth of a second of CPU time. Sources take
// turns, so that a stranger who guesses passwords does not delay others, and the number of waiting checks is bounded.
//
// Many strangers together could still delay others, so sources have a [class]: proven sources come first, then strange ones, then failing
// ones. A waiting class gets a turn after four checks of better classes. Of six checks in a row each waiting class gets at least one.
//
// The gate has no goroutine: an attempt that is woken checks the password itself and reports the result. It is safe for
// concurrent use.
type gate struct {
	failed  *throttle
	sources *sources
	known   func(digest) bool // reports whether a password was right before
	most    int               // checks that may run at a time

	mu      sync.Mutex // guards the fields below, and the fields of attempts and checks that belong to the gate
	running int
	waiting int // waiting checks of all lines
	checks  map[checkKey]*check
	lines   map[string]*line // by source
	queues  [classes]queue
}

// queue holds the lines of one class.
type queue struct {
	turns   []*line // lines with waiting checks; the first is next
	waiting int     // waiting checks of these lines
	passed  int     // checks of better classes that started while this class had lines, since its last turn
}

const (
	// maxWaiting bounds the waiting checks, and maxLine those of one source. Clients give up before a longer queue is done.
	maxWaiting = 1024
	maxLine    = 256
	// reserved is how many waiting checks each class may always have: better classes do not take these places.
	reserved = maxWaiting / 8
	// turnAfter is how many checks of better classes a waiting class lets pass before its turn.
	turnAfter = 4
)

func newGate(failed *throttle, sources *sources, known func(digest) bool, most int) *gate {
	return &gate{failed: failed, sources: sources, known: known, most: most, checks: map[checkKey]*check{}, lines: map[string]*line{}}
}

// checkKey identifies a check. Attempts with the same password at the same time from the same source share one. The name is part of
// the key: otherwise names without a user would share a check, and the time it takes would show that they have no user.
type checkKey struct {
	source, name string
	digest       digest
}

// check is one check of a password, for all attempts that wait for its result. It belongs to the gate.
type check struct {
	checkKey
	attempts []*attempt
	runner   *attempt // the attempt that runs the check; nil = the check waits in its line
}

// line holds the waiting checks of one source, in order of arrival.
type line struct {
	source string
	class  class
	checks []*check
}

// attempt is one login in progress. It belongs to the gate, except for woken, and for result after woken was received from.
type attempt struct {
	login
	check    *check
	admitted bool          // the throttle counts it as undecided
	woken    chan struct{} // capacity 1: receives when the result is ready, or when the attempt is to run the check
	result   result
}

type result struct {
	is    resultKind
	retry time.Duration // if early: how long to wait
}

type resultKind uint8

const (
	undecided resultKind = iota
	right
	wrong
	barred // right, but the user may not log in from this source
	early  // too many logins failed; the password was not checked
	busy   // too many checks wait, or the caller gave up; the password was not checked
)

// enter begins an attempt. It is woken when it has a result or is to run the check.
func (g *gate) enter(l login) *attempt {
	a := &attempt{login: l, woken: make(chan struct{}, 1)}
	key := checkKey{l.network, l.name, l.digest}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.decided(a) {
		return a
	}
	k := g.checks[key]
	if k == nil {
		c := g.sources.class(l.source, l.from.Now)
		if !g.makeSpace(key.source, c) {
			g.decide(a, result{is: busy})
			return a
		}
		k = &check{checkKey: key}
		g.checks[key] = k
		g.enqueue(k, c, false)
	}
	a.check = k
	k.attempts = append(k.attempts, a)
	g.startChecks()
	return a
}

// decided decides an attempt that needs no check, and reports whether it did. Comparing with known passwords is a guess, too, so only
// attempts that the throttle admits are compared.
func (g *gate) decided(a *attempt) bool {
	if !a.admitted {
		a.admitted = g.failed.begin(a.keys, a.from.Now)
	}
	if a.admitted {
		if a.barred || !g.known(a.digest) {
			return false
		}
		g.decide(a, result{is: right})
		return true
	}
	retry := g.failed.retry(a.keys, a.from.Now)
	if retry > 0 {
		g.decide(a, result{is: early, retry: retry})
	}
	return retry > 0
}

func (g *gate) decide(a *attempt, r result) {
	g.end(a)
	switch r.is {
	case right:
		g.sources.succeeded(a.source, a.name)
		g.classify(a)
	case wrong, barred:
		g.failed.fail(a.keys, a.from.Now)
		g.sources.failed(a.source, a.from.Now)
		g.classify(a)
	}
	a.result = r
	a.woken <- struct{}{}
}

// end makes the throttle no longer count an attempt as undecided.
func (g *gate) end(a *attempt) {
	if a.admitted {
		a.admitted = false
		g.failed.end(a.keys, a.from.Now)
	}
}

// classify moves the line of an attempt's source to the source's class.
func (g *gate) classify(a *attempt) {
	l := g.lines[a.network]
	if l == nil {
		return
	}
	c := g.sources.class(a.source, a.from.Now)
	if c == l.class {
		return
	}
	g.queues[l.class].leave(l)
	g.queues[l.class].waiting -= len(l.checks)
	l.class = c
	g.queues[c].turns = append(g.queues[c].turns, l)
	g.queues[c].waiting += len(l.checks)
}

func (q *queue) leave(l *line) {
	q.turns = slices.DeleteFunc(q.turns, func(other *line) bool { return other == l })
	if len(q.turns) == 0 {
		q.passed = 0
	}
}

// makeSpace reports whether one more check of a source may wait. If the gate is full, the source with the most waiting checks in the
// class that has to give way loses its last one.
func (g *gate) makeSpace(source string, c class) bool {
	own := 0
	if l := g.lines[source]; l != nil {
		own = len(l.checks)
	}
	if own >= maxLine {
		return false
	}
	if g.waiting < maxWaiting {
		return true
	}
	from := g.givesWay(c)
	longest := slices.MaxFunc(g.queues[from].turns, func(a, b *line) int { return len(a.checks) - len(b.checks) })
	if from == c && len(longest.checks) <= own+1 {
		return false
	}
	k := longest.checks[len(longest.checks)-1]
	g.drop(k)
	for _, a := range k.attempts {
		g.decide(a, result{is: busy})
	}
	return true
}

// givesWay returns the class that has to give way to one more check of class c when the gate is full.
func (g *gate) givesWay(c class) class {
	for worse := classes - 1; worse > c; worse-- {
		if g.queues[worse].waiting > reserved {
			return worse
		}
	}
	if g.queues[c].waiting >= reserved {
		return c
	}
	largest := proven
	for other := range classes {
		if g.queues[other].waiting > g.queues[largest].waiting {
			largest = other
		}
	}
	return largest
}

// enqueue adds a check to its line, at the end or in front. A new line is of class c.
func (g *gate) enqueue(k *check, c class, front bool) {
	l := g.lines[k.source]
	if l == nil {
		l = &line{source: k.source, class: c}
		g.lines[k.source] = l
		g.queues[c].turns = append(g.queues[c].turns, l)
	}
	i := len(l.checks)
	if front {
		i = 0
	}
	l.checks = slices.Insert(l.checks, i, k)
	g.waiting++
	g.queues[l.class].waiting++
}

// drop removes a waiting check.
func (g *gate) drop(k *check) {
	l := g.lines[k.source]
	l.checks = slices.DeleteFunc(l.checks, func(other *check) bool { return other == k })
	g.waiting--
	g.queues[l.class].waiting--
	delete(g.checks, k.checkKey)
	if len(l.checks) == 0 {
		delete(g.lines, l.source)
		g.queues[l.class].leave(l)
	}
}

// startChecks starts as many checks as may run.
func (g *gate) startChecks() {
	for g.running < g.most {
		k := g.pick()
		if k == nil {
			return
		}
		g.start(k)
	}
}

// pick returns the next check; nil = none can run. A class that others have passed often enough comes first, otherwise the best class.
func (g *gate) pick() *check {
	for c := range classes {
		if g.queues[c].passed < turnAfter {
			continue
		}
		if k := g.take(c); k != nil {
			return k
		}
	}
	for c := range classes {
		if k := g.take(c); k != nil {
			return k
		}
	}
	return nil
}

// take returns and counts the next check of a class that can run; the class's lines take turns. nil = none can run.
func (g *gate) take(c class) *check {
	q := &g.queues[c]
	for n := len(q.turns); n > 0 && len(q.turns) > 0; n-- {
		l := q.turns[0]
		q.turns = append(q.turns[1:], l)
		k := g.next(l)
		if k == nil { // none of its attempts is admitted yet
			continue
		}
		q.passed = 0
		for worse := c + 1; worse < classes; worse++ {
			if len(g.queues[worse].turns) > 0 {
				g.queues[worse].passed++
			}
		}
		return k
	}
	return nil
}

// next returns the first check of a line that can run; nil = none can. It decides attempts that no longer need a check.
func (g *gate) next(l *line) *check {
	for i := 0; i < len(l.checks); {
		k := l.checks[i]
		k.attempts = slices.DeleteFunc(k.attempts, g.decided)
		switch {
		case len(k.attempts) == 0:
			g.drop(k)
		case k.admitted() != nil:
			return k
		default:
			i++
		}
	}
	return nil
}

// admitted returns an attempt that the throttle has admitted; nil = there is none.
func (k *check) admitted() *attempt {
	for _, a := range k.attempts {
		if a.admitted {
			return a
		}
	}
	return nil
}

// start wakes one of the attempts to run the check.
func (g *gate) start(k *check) {
	g.drop(k)
	g.checks[k.checkKey] = k // later attempts share it while it runs
	g.running++
	k.runner = k.admitted()
	k.runner.woken <- struct{}{}
}

// finish reports the result of a check that an attempt ran. Attempts that the throttle has not admitted yet keep waiting.
func (g *gate) finish(a *attempt, is resultKind) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := a.check
	k.attempts = slices.DeleteFunc(k.attempts, func(other *attempt) bool {
		if !other.admitted {
			return false
		}
		g.decide(other, result{is: is})
		return true
	})
	g.stopped(k)
}

// stopped puts a check that ran back in front of its line, if attempts still wait for it.
func (g *gate) stopped(k *check) {
	g.running--
	k.runner = nil
	if len(k.attempts) == 0 {
		delete(g.checks, k.checkKey)
	} else {
		a := k.attempts[0]
		g.enqueue(k, g.sources.class(a.source, a.from.Now), true)
	}
	g.startChecks()
}

// abandon ends an attempt whose caller gave up. It does nothing if the attempt has a result.
func (g *gate) abandon(a *attempt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.result.is != undecided {
		return
	}
	g.end(a)
	a.result.is = busy
	k := a.check
	k.attempts = slices.DeleteFunc(k.attempts, func(other *attempt) bool { return other == a })
	switch {
	case k.runner == a:
		g.stopped(k)
	case k.runner == nil && len(k.attempts) == 0:
		g.drop(k)
	}
	g.startChecks() // another attempt may be admitted in its place
}
