package mgmt

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// eventFilter is which events somebody wants to see.
type eventFilter struct {
	vhost    string            // with inVHost
	inVHost  bool              // those of that vhost only
	queue    func(string) bool // nil = every queue, and what is about none
	kinds    names
	reasons  names
	outcomes names
	history  int // how many of those that are over come first
}

// names are some of a list of names, as bits; 0 = all.
type names uint64

func (n names) has(i uint8) bool { return n == 0 || n&(1<<i) != 0 }

// maxHistory is more than a ring is likely to remember; asking for it is asking for everything.
const maxHistory = math.MaxInt32

func (q *query) eventFilter() (f eventFilter, err error) {
	f.vhost, f.inVHost = q.raw.Get("vhost"), q.raw.Has("vhost")
	if f.queue, err = queueFilter(q.raw.Get("queue"), q.raw.Get("queue_regex")); err != nil {
		return f, err
	}
	for _, list := range []struct {
		parameter string
		all       []string
		into      *names
	}{
		{"kind", kindNames(), &f.kinds},
		{"reason", reasonNames(), &f.reasons},
		{"outcome", outcomeNames(), &f.outcomes},
	} {
		if *list.into, err = parseNames(list.parameter, q.raw[list.parameter], list.all); err != nil {
			return f, err
		}
	}
	if s := q.raw.Get("history"); s != "" {
		if f.history, err = strconv.Atoi(s); err != nil || f.history < 0 || f.history > maxHistory {
			return f, badRequest("history: %q is not a number of events from 0 to %d", s, maxHistory)
		}
	}
	return f, nil
}

// queueFilter lets a queue pass by name or, if that is empty, those that match an expression.
func queueFilter(name, expression string) (func(string) bool, error) {
	switch {
	case name != "" && expression != "":
		return nil, badRequest("queue and queue_regex exclude each other")
	case name != "":
		return func(q string) bool { return q == name }, nil
	case expression == "":
		return nil, nil
	case len(expression) > maxExpression:
		return nil, badRequest("queue_regex has %d bytes: at most %d are allowed", len(expression), maxExpression)
	}
	re, err := regexp.Compile(expression)
	if err != nil {
		return nil, badRequest("queue_regex: %v", err)
	}
	return re.MatchString, nil
}

// parseNames reads lists of names with commas between them.
func parseNames(parameter string, values, all []string) (n names, err error) {
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			if name == "" {
				continue
			}
			i := slices.Index(all, name)
			if i < 0 {
				return 0, badRequest("%s: %q is unknown; there are %s", parameter, name, strings.Trim(strings.Join(all, ", "), ", "))
			}
			n |= 1 << i
		}
	}
	return n, nil
}

func kindNames() []string    { return namesOf(uint8(telemetry.Kinds), telemetry.Kind.String) }
func reasonNames() []string  { return namesOf(uint8(hook.Reasons), hook.Reason.String) }
func outcomeNames() []string { return namesOf(uint8(telemetry.Outcomes), telemetry.Outcome.String) }

// namesOf lists the names of the values below n.
func namesOf[T ~uint8](n uint8, name func(T) string) []string {
	all := make([]string, n)
	for i := range n {
		all[i] = name(T(i))
	}
	return all
}

// passes reports whether an event is one of those.
func (f *eventFilter) passes(e *telemetry.Event) bool {
	switch {
	case !f.kinds.has(uint8(e.Kind)), f.inVHost && e.VHost != f.vhost:
		return false
	case f.reasons != 0 && (e.Reason == hook.ReasonNone || !f.reasons.has(uint8(e.Reason))):
		return false
	case f.outcomes != 0 && (!e.Kind.OfMessage() || !f.outcomes.has(uint8(e.Outcome))):
		return false
	}
	if f.queue == nil {
		return true
	}
	return e.Queue != "" && f.queue(e.Queue)
}
