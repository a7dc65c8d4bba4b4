package auth

import (
	"slices"
	"sync"
	"time"
)

// gate schedules password checks. It runs few at a time, because each takes a tenth of a second of CPU time. Sources take
// turns, so that a stranger who guesses passwords does not delay others, and the number of waiting checks is bounded.
//
// Many strangers could delay others all the same, so sources have a [class]: proven ones come first, then strange ones, then failing ones. A class
// that waits has a turn after four checks of better ones, so that of six checks in a row it has at least one.
//
// The gate has no goroutine: an attempt that is woken checks the password itself and reports the result. It is safe for
// concurrent use.
type gate struct {
	failed  *throttle
	sources *sources
	known   func(digest) bool // reports whether a password was right before
	most    int               // checks at a time

	mu      sync.Mutex // guards what follows, and the fields of attempts and checks that belong to the gate
	running int
	waiting int // checks in lines
	checks  map[checkKey]*check
	lines   map[string]*line // by source
	queues  [classes]queue
}

// queue is the lines of one class.
type queue struct {
	turns   []*line // that have waiting checks; the first is next
	waiting int     // checks in them
	passed  int     // checks of better classes that were started while it had lines, since its last turn
}

const (
	// maxWaiting bounds the waiting checks, and maxLine those of one source. Clients would give up before a later one is done.
	maxWaiting = 1024
	maxLine    = 256
	// reserved is how many of the waiting checks a class may always have: better ones do not take these places.
	reserved = maxWaiting / 8
	// turnAfter is after how many checks of better classes one of a class that waits is next.
	turnAfter = 4
)

func newGate(failed *throttle, sources *sources, known func(digest) bool, most int) *gate {
	return &gate{failed: failed, sources: sources, known: known, most: most, checks: map[checkKey]*check{}, lines: map[string]*line{}}
}

// checkKey identifies a check. Attempts with the same password at the same time from the same source share one. The name is
// part of it: names without a user would otherwise share a check, which would show that there are no such users.
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

// attempt is one login in progress. It belongs to the gate, except for woken, and for result once woken was received from.
type attempt struct {
	login
	check    *check
	admitted bool          // the throttle counts it as undecided
	woken    chan struct{} // capacity 1: receives when the result is there, or when the attempt is to run the check
	result   result
}

// result is the result of an attempt.
type result struct {
	is    resultKind
	retry time.Duration // if early: how long to wait
}

type resultKind uint8

const (
	undecided resultKind = iota
	right
	wrong
	barred // right, but the user may not log in from there
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

// decided decides an attempt that needs no check, and reports whether it did. Comparing with known passwords is a guess, too:
// so only attempts that the throttle admits are compared.
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

// decide gives an attempt its result.
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

// end makes the throttle count an attempt no longer as undecided.
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

// leave removes a line.
func (q *queue) leave(l *line) {
	q.turns = slices.DeleteFunc(q.turns, func(other *line) bool { return other == l })
	if len(q.turns) == 0 {
		q.passed = 0
	}
}

// makeSpace reports whether one more check of a source may wait. If too many do, the source with most in the class that has to give way loses its
// last one.
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

// givesWay returns which class has to give way to one more check of a class, while as many wait as may.
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

// pick returns the check that is next, nil if none can run: one of a class that others have passed often enough, otherwise of the best class.
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

// take returns the next check of a class that can run, one of each line in turn, and counts it; nil if there is none.
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

// next returns the first check of a line that can run, nil if there is none. It decides attempts that need no check any more.
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

// admitted returns an attempt that may fail, nil if there is none.
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

// finish reports the result of a check that an attempt ran. Attempts that the throttle has not admitted yet wait on.
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
