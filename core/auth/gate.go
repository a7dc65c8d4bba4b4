package auth

import (
	"slices"
	"sync"
	"time"
)

// gate says who may have a password checked, and when: a few at a time, because each takes a tenth of a second of a processor;
// of every place in turn, so that nobody waits for strangers who try out passwords; no more of them waiting than make sense.
//
// It has no goroutine: whoever is let through checks on their own, and says what came of it. Any goroutine may use it.
type gate struct {
	failed *throttle
	known  func(digest) bool // passwords that were right
	most   int               // checks at a time

	mu      sync.Mutex // guards what follows, and what attempts and checks say is the gate's
	running int
	waiting int // checks that nobody is at
	checks  map[checkKey]*check
	lines   map[string]*line
	turns   []*line // those in which somebody waits; the first is next
}

const (
	// maxWaiting bounds the checks that wait, and maxLine those of one place: those behind would not be done by the time that
	// clients give up.
	maxWaiting = 1024
	maxLine    = 256
)

func newGate(failed *throttle, known func(digest) bool, most int) *gate {
	return &gate{failed: failed, known: known, most: most, checks: map[checkKey]*check{}, lines: map[string]*line{}}
}

// checkKey tells checks apart. Whoever tries the same at the same time from the same place waits for the same check, however
// many they are. The name is in it so that users who do not exist are not taken for one another: that would show.
type checkKey struct {
	source, name string
	digest       digest
}

// check is a password that has to be checked, for all who wait to know. It is the gate's.
type check struct {
	checkKey
	attempts []*attempt
	runner   *attempt // who was told to check; nil = it waits in its line
}

// line is the checks that wait of one place, in the order they came.
type line struct {
	source string
	checks []*check
}

// attempt is one login on its way. It is the gate's but for told and, when that has been received from, verdict.
type attempt struct {
	login
	check    *check
	admitted bool          // it counts among those that may fail
	told     chan struct{} // capacity 1: has a value when the verdict is there, or when the attempt is to do the check
	verdict  verdict
}

// verdict is what came of an attempt.
type verdict struct {
	is    outcome
	retry time.Duration // of a login that came too early: when not to
}

type outcome uint8

const (
	undecided outcome = iota
	right
	wrong
	barred // right, but it lets nobody in who is where the login comes from
	early  // too many failed: the password was not looked at
	busy   // too many wait, or it took too long for whoever asks: the password was not looked at
)

// enter has a login wait for its turn. It is told when that has come, or when there is no need to.
func (g *gate) enter(l login) *attempt {
	a := &attempt{login: l, told: make(chan struct{}, 1)}
	key := checkKey{network(l.from.Host), l.name, l.digest}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.settle(a) {
		return a
	}
	k := g.checks[key]
	if k == nil {
		if !g.makeRoom(key.source) {
			a.decide(g.failed, verdict{is: busy})
			return a
		}
		k = &check{checkKey: key}
		g.checks[key] = k
		g.wait(k, false)
	}
	a.check = k
	k.attempts = append(k.attempts, a)
	g.serve()
	return a
}

// settle decides an attempt that needs no check, and reports whether it is decided. To look whether a password is one that was
// right is a guess, too: no more of them are undecided at a time than may fail.
func (g *gate) settle(a *attempt) bool {
	if !a.admitted {
		a.admitted = g.failed.begin(a.suspects, a.from.Now)
	}
	if a.admitted {
		if !a.barred && g.known(a.digest) {
			a.decide(g.failed, verdict{is: right})
			return true
		}
		return false
	}
	if retry := g.failed.retry(a.suspects, a.from.Now); retry > 0 {
		a.decide(g.failed, verdict{is: early, retry: retry})
		return true
	}
	return false
}

// decide tells an attempt what came of it.
func (a *attempt) decide(failed *throttle, v verdict) {
	a.leave(failed)
	if v.is == wrong || v.is == barred {
		failed.fail(a.suspects, a.from.Now)
	}
	a.verdict = v
	a.told <- struct{}{}
}

// leave counts an attempt out of those that may fail.
func (a *attempt) leave(failed *throttle) {
	if a.admitted {
		a.admitted = false
		failed.end(a.suspects, a.from.Now)
	}
}

// makeRoom reports whether one more check of a place may wait. If too many do, the place that has most of them gives way.
func (g *gate) makeRoom(source string) bool {
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
		a.decide(g.failed, verdict{is: busy})
	}
	return true
}

// wait puts a check in its line, at the end or in front.
func (g *gate) wait(k *check, front bool) {
	l := g.lines[k.source]
	if l == nil {
		l = &line{source: k.source}
		g.lines[k.source] = l
		g.turns = append(g.turns, l)
	}
	at := len(l.checks)
	if front {
		at = 0
	}
	l.checks = slices.Insert(l.checks, at, k)
	g.waiting++
}

// drop takes a check that waits out of its line, and forgets it.
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

// serve lets those through whose turn it is, as many as may.
func (g *gate) serve() {
	for passed := 0; g.running < g.most && passed < len(g.turns); {
		l := g.turns[0]
		g.turns = append(g.turns[1:], l)
		if k := g.next(l); k != nil {
			g.start(k)
			passed = 0
			continue
		}
		if g.lines[l.source] == l { // all who wait there have to wait for others
			passed++
		}
	}
}

// next returns the first check of a line that can be done now, nil if there is none. What needs none any more is settled.
func (g *gate) next(l *line) *check {
	for i := 0; i < len(l.checks); {
		k := l.checks[i]
		k.attempts = slices.DeleteFunc(k.attempts, g.settle)
		if len(k.attempts) == 0 {
			g.drop(k)
			continue
		}
		if k.admitted() != nil {
			return k
		}
		i++
	}
	return nil
}

// admitted returns an attempt that may fail, nil if there is none.
func (k *check) admitted() *attempt {
	i := slices.IndexFunc(k.attempts, func(a *attempt) bool { return a.admitted })
	if i < 0 {
		return nil
	}
	return k.attempts[i]
}

// start has one of the attempts do the check.
func (g *gate) start(k *check) {
	g.drop(k)
	g.checks[k.checkKey] = k // whoever comes now waits for it, too
	g.running++
	k.runner = k.admitted()
	k.runner.told <- struct{}{}
}

// finish says whether the password is right that an attempt was told to check. Those who were not to know yet wait on.
func (g *gate) finish(a *attempt, is outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := a.check
	g.running--
	k.attempts = slices.DeleteFunc(k.attempts, func(other *attempt) bool {
		if !other.admitted {
			return false
		}
		other.decide(g.failed, verdict{is: is})
		return true
	})
	g.again(k)
}

// again has a check that nobody is at any more wait in front, if anybody still wants it done.
func (g *gate) again(k *check) {
	k.runner = nil
	if len(k.attempts) == 0 {
		delete(g.checks, k.checkKey)
	} else {
		g.wait(k, true)
	}
	g.serve()
}

// abandon takes back an attempt that nobody waits for any more. It does nothing if that has been decided.
func (g *gate) abandon(a *attempt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.verdict.is != undecided {
		return
	}
	a.leave(g.failed)
	a.verdict.is = busy
	k := a.check
	k.attempts = slices.DeleteFunc(k.attempts, func(other *attempt) bool { return other == a })
	switch {
	case k.runner == a:
		g.running--
		g.again(k)
	case k.runner == nil && len(k.attempts) == 0:
		g.drop(k)
	}
	g.serve() // somebody else of its kind may have a turn now
}
