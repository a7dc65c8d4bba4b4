package events

import (
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/pattern"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Filter selects the events that a reader wants.
type Filter struct {
	VHost    string          // name of the vhost, with InVHost
	InVHost  bool            // only events of that vhost
	queue    *pattern.Filter // nil = every queue, and events without a queue
	schedule string          // the exchange that held the message, with ofOne
	ofOne    bool            // only events of messages that one exchange held
	id       string          // the property message-id; "" = any, or none
	kinds    names
	reasons  names
	outcomes names
	history  int // how many past events are sent first
	// perSecond is the maximum of events of messages and queues per second; 0 = all.
	perSecond int
}

// names is a selection from a list of names, as bits; 0 = all.
type names uint64

func (n names) has(i uint8) bool { return n == 0 || n&(1<<i) != 0 }

// maxHistory is more than a ring is likely to hold: it means everything.
const maxHistory = math.MaxInt32

// ParseFilter reads a filter from the parameters of a query.
func ParseFilter(turns *pattern.Turns, q url.Values) (f Filter, err error) {
	f.VHost, f.InVHost = q.Get("vhost"), q.Has("vhost")
	if f.queue, err = queueFilter(turns, q.Get("queue"), q.Get("queue_regex")); err != nil {
		return f, err
	}
	if f.schedule, f.ofOne = q.Get("schedule"), q.Has("schedule"); f.ofOne && f.queue != nil {
		return f, jsonobj.Errorf("queue and schedule exclude each other: a message is held in one of them")
	}
	if f.id = q.Get("message_id"); len(f.id) > maxID {
		return f, jsonobj.Errorf("message_id has %d bytes: at most %d are allowed", len(f.id), maxID)
	}
	for _, list := range []struct {
		parameter string
		all       []string
		into      *names
	}{
		{"kind", namesOf(telemetry.Kinds, telemetry.Kind.String), &f.kinds},
		{"reason", namesOf(hook.Reasons, hook.Reason.String), &f.reasons},
		{"outcome", namesOf(telemetry.Outcomes, telemetry.Outcome.String), &f.outcomes},
	} {
		if *list.into, err = parseNames(list.parameter, q[list.parameter], list.all); err != nil {
			return f, err
		}
	}
	if s := q.Get("history"); s != "" {
		if f.history, err = strconv.Atoi(s); err != nil || f.history < 0 || f.history > maxHistory {
			return f, jsonobj.Errorf("history: %q is not a number of events from 0 to %d", s, maxHistory)
		}
	}
	if s := q.Get("per_second"); s != "" {
		if f.perSecond, err = strconv.Atoi(s); err != nil || f.perSecond < 1 || f.perSecond > perSecondAtMost {
			return f, jsonobj.Errorf("per_second: %q is not a number of events from 1 to %d", s, perSecondAtMost)
		}
	}
	return f, nil
}

// maxID is the maximum length of a message-id, in bytes.
const maxID = 255

// History returns how many past events the reader wants to get first.
func (f *Filter) History() int { return f.history }

// queueFilter returns a filter for the queue of a name or, if the name is empty, for queues whose names match a regular expression.
func queueFilter(turns *pattern.Turns, name, expression string) (*pattern.Filter, error) {
	switch {
	case name != "" && expression != "":
		return nil, jsonobj.Errorf("queue and queue_regex exclude each other")
	case name != "":
		return pattern.Plain(func(q string) bool { return q == name }), nil
	case expression == "":
		return nil, nil
	}
	f, err := turns.Expression("queue_regex", expression)
	if err != nil {
		return nil, jsonobj.Errorf("%v", err)
	}
	return f, nil
}

// parseNames reads lists of names that are separated by commas.
func parseNames(parameter string, values, all []string) (n names, err error) {
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			if name == "" {
				continue
			}
			i := slices.Index(all, name)
			if i < 0 {
				return 0, jsonobj.Errorf("%s: %q is unknown; there are %s", parameter, name, strings.Trim(strings.Join(all, ", "), ", "))
			}
			n |= 1 << i
		}
	}
	return n, nil
}

// namesOf lists the names of the values below n.
func namesOf[T ~uint8](n T, name func(T) string) []string {
	all := make([]string, n)
	for i := range n {
		all[i] = name(i)
	}
	return all
}

// Passes reports whether the reader wants an event. run comes from [Filter.Begin].
func (f *Filter) Passes(e *telemetry.Event, run *pattern.Run) bool {
	switch {
	case !f.kinds.has(uint8(e.Kind)), f.InVHost && e.VHost != f.VHost:
		return false
	case f.reasons != 0 && (e.Reason == hook.ReasonNone || !f.reasons.has(uint8(e.Reason))):
		return false
	case f.outcomes != 0 && (!e.Kind.OfMessage() || !f.outcomes.has(uint8(e.Outcome))):
		return false
	}
	if f.id != "" && !f.isAbout(e) {
		return false
	}
	if f.ofOne {
		return e.Schedule && e.Queue == f.schedule
	}
	if f.queue == nil {
		return true
	}
	return e.Queue != "" && !e.Schedule && run.Passes(e.Queue)
}

// Begin begins to compare events. The caller ends the run.
func (f *Filter) Begin(done <-chan struct{}, most time.Duration) *pattern.Run {
	return f.queue.Begin(done, most)
}

// isAbout reports whether an event is about a message with the id that the reader wants. An id that the event has only in part counts if
// the part matches.
func (f *Filter) isAbout(e *telemetry.Event) bool {
	if !e.Kind.OfMessage() {
		return false
	}
	id, cut := e.MessageID()
	if cut {
		return strings.HasPrefix(f.id, string(id)) && len(f.id) > len(id)
	}
	return string(id) == f.id
}
