// Package pattern matches names with a text or a regular expression that a user has chosen. A list may have a hundred thousand names, and
// an expression can take milliseconds for each. So the expressions of all users take turns on half of the processors, and the expression of
// a request ends with the request.
package pattern

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// MaxExpression limits an expression, in bytes.
const MaxExpression = 1024

const (
	// turn is the number of steps that a run makes before other runs have their turn. They take some milliseconds.
	turn = 1 << 18
	// MostTime is how long the turns of one request may take.
	MostTime = 10 * time.Second
)

// ErrGone is the error of a run after its reader has left.
var ErrGone = errors.New("the client has left")

// Turns are shared by all runs: each takes one while it matches. Any goroutine may use them.
type Turns struct {
	slots chan struct{} // holds an element for each run that has its turn
	clock clock.Clock
}

// NewTurns returns turns that are all free.
func NewTurns(now clock.Clock) *Turns {
	return &Turns{slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), clock: now}
}

// Filter says which names pass. It does not change.
type Filter struct {
	plain      func(string) bool // nil = the expression decides
	expression *policies.Expression
	turns      *Turns
}

// Plain returns a filter that takes no turns.
func Plain(match func(string) bool) *Filter { return &Filter{plain: match} }

// Expression returns the filter of names in which an expression matches. Errors call the expression what.
func (t *Turns) Expression(what, text string) (*Filter, error) { return t.expression(what, text, "") }

// Folded is Expression in upper or lower case.
func (t *Turns) Folded(what, text string) (*Filter, error) { return t.expression(what, text, "(?i)") }

func (t *Turns) expression(what, text, flags string) (*Filter, error) {
	if len(text) > MaxExpression {
		return nil, fmt.Errorf("%s has %d bytes: at most %d are allowed", what, len(text), MaxExpression)
	}
	e, err := policies.ParseExpression(text)
	if err == nil && flags != "" { // after the text alone, because errors quote it
		e, err = policies.ParseExpression(flags + text)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return &Filter{expression: e, turns: t}, nil
}

// Begin begins to compare names, until done is closed and for as long as most; 0 = any time. The caller ends the run. Without a filter
// every name passes.
func (f *Filter) Begin(done <-chan struct{}, most time.Duration) *Run {
	if f == nil {
		return nil
	}
	r := &Run{filter: f, done: done, most: most}
	if f.expression != nil {
		r.take()
	}
	return r
}

// Run compares one name after the other. It belongs to one goroutine.
type Run struct {
	filter *Filter
	done   <-chan struct{}
	most   time.Duration

	held  bool // the run has its turn
	began hook.Instant
	spent time.Duration // in earlier turns
	steps int           // in this turn
	err   error
}

// Passes reports whether a name passes; none does after an error.
func (r *Run) Passes(name string) bool {
	switch {
	case r == nil:
		return true
	case r.err != nil:
		return false
	case r.filter.plain != nil:
		return r.filter.plain(name)
	}
	if r.steps += r.filter.expression.Cost(name); r.steps > turn {
		r.yield()
		if r.take(); r.err != nil {
			return false
		}
	}
	return r.filter.expression.Match(name)
}

// End ends the run. It returns an error if names were not compared.
func (r *Run) End() error {
	if r == nil {
		return nil
	}
	r.yield()
	return r.err
}

// take waits for the run's turn.
func (r *Run) take() {
	t := r.filter.turns
	select {
	case <-r.done: // first, even if a turn is ready, too
		r.err = ErrGone
		return
	default:
	}
	if r.most > 0 && r.spent > r.most {
		r.err = fmt.Errorf("the expression takes more than %v to compare with all names: a simpler one is needed", r.most)
		return
	}
	select {
	case <-r.done:
		r.err = ErrGone
	case t.slots <- struct{}{}:
		r.held, r.began, r.steps = true, t.clock(), 0
	}
}

// yield ends the turn, if the run has it.
func (r *Run) yield() {
	if !r.held {
		return
	}
	r.spent += r.filter.turns.clock().Sub(r.began)
	r.held = false
	<-r.filter.turns.slots
}
