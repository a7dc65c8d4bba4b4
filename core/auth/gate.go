package auth

import (
	"slices"
	"sync"
	"time"
)

// gate schedules password checks. It runs few at a time, because each takes a tenth of a second of CPU time. Sources take
// turns, so that a stranger who guesses passwords does not delay others, and the number of waiting checks is bounded.
//
// The gate has no goroutine: an attempt that is woken checks the password itself and reports the result. It is safe for
// concurrent use.
type gate struct {
	failed *throttle
	known  func(digest) bool // reports whether a password was right before
	most   int               // checks at a time

	mu      sync.Mutex // guards what follows, and the fields of attempts and checks that belong to the gate
	running int
	waiting int // checks in lines
	checks  map[checkKey]*check
	lines   map[string]*line // by source
	turns   []*line          // lines with waiting checks; the first is next
}

const (
	// maxWaiting bounds the waiting checks, and maxLine those of one source. Clients would give up before a later one is done.
	maxWaiting = 1024
	maxLine    = 256
)

func newGate(failed *throttle, known func(digest) bool, most int) *gate {
	return &gate{failed: failed, known: known, most: most, checks: map[checkKey]*check{}, lines: map[string]*line{}}
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
	key := checkKey{network(l.from.Host), l.name, l.digest}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.decided(a) {
		return a
	}
	k := g.checks[key]
	if k == nil {
		if !g.makeSpace(key.source) {
			g.decide(a, result{is: busy})
			return a
		}
		k = &check{checkKey: key}
		g.checks[key] = k
		g.enqueue(k, false)
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
	if r.is == wrong || r.is == barred {
		g.failed.fail(a.keys, a.from.Now)
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

// makeSpace reports whether one more check of a source may wait. If too many do, the source with most loses its last one.
func (g *gate) makeSpace(source string) bool {
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
	longest := slices.MaxFunc(g.turns, func(a, b *line) int { return len(a.checks) - len(b.checks) })
	if len(longest.checks) <= own+1 {
		return false
	}
	k := longest.checks[len(longest.checks)-1]
	g.drop(k)
	for _, a := range k.attempts {
		g.decide(a, result{is: busy})
	}
	return true
}

// enqueue adds a check to its line, at the end or in front.
func (g *gate) enqueue(k *check, front bool) {
	l := g.lines[k.source]
	if l == nil {
		l = &line{source: k.source}
		g.lines[k.source] = l
		g.turns = append(g.turns, l)
	}
	i := len(l.checks)
	if front {
		i = 0
	}
	l.checks = slices.Insert(l.checks, i, k)
	g.waiting++
}

// drop removes a waiting check.
func (g *gate) drop(k *check) {
	l := g.lines[k.source]
	l.checks = slices.DeleteFunc(l.checks, func(other *check) bool { return other == k })
	g.waiting--
	delete(g.checks, k.checkKey)
	if len(l.checks) == 0 {
		delete(g.lines, l.source)
		g.turns = slices.DeleteFunc(g.turns, func(other *line) bool { return other == l })
	}
}

// startChecks starts as many checks as may run, one of each line in turn.
func (g *gate) startChecks() {
	for passed := 0; g.running < g.most && passed < len(g.turns); {
		l := g.turns[0]
		g.turns = append(g.turns[1:], l)
		if k := g.next(l); k != nil {
			g.start(k)
			passed = 0
		} else if g.lines[l.source] == l { // none of its attempts is admitted yet
			passed++
		}
	}
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
		g.enqueue(k, true)
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
