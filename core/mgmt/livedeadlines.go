package mgmt

import (
	"net/url"
	"strings"

	"github.com/curfewmq/curfew/core/mgmt/live"
	"github.com/curfewmq/curfew/core/mgmt/pattern"
)

// readDeadlines reads the parameters of the view deadlines.
func readDeadlines(a *API, q url.Values) (func(*watcher) maker, error) {
	d, err := deadlinesView(a.turns, q)
	if err != nil {
		return nil, err
	}
	sort, err := choiceOf(q, "sort", live.RowMembers, "next_deadline")
	if err != nil {
		return nil, err
	}
	reverse, err := truthOf(q, "sort_reverse")
	return func(w *watcher) maker {
		own := d
		own.Survey, own.See, own.Watch = a.survey, w.sees(), w.watches()
		own.SortBy(sort, reverse)
		if isMonitor(w.user) {
			own.Lateness = a.late
		}
		return own.State
	}, err
}

func deadlinesView(turns *pattern.Turns, q url.Values) (d live.Deadlines, err error) {
	const most = 100
	if d.Page, d.Size, err = pageOf(q, most); err != nil {
		return d, err
	}
	if d.Buckets, err = live.ParseBuckets(q.Get("buckets")); err != nil {
		return d, err
	}
	d.Queue, err = queueFilter(turns, q.Get("queue"))
	return d, err
}

// queueFilter returns a filter for the queue of a name or, after a slash, for queues that match an RE2 expression, which may end with
// another slash; nil for none.
func queueFilter(turns *pattern.Turns, s string) (*pattern.Filter, error) {
	switch {
	case s == "":
		return nil, nil
	case len(s) > pattern.MaxExpression:
		return nil, badRequest("queue has %d bytes: at most %d are allowed", len(s), pattern.MaxExpression)
	case !strings.HasPrefix(s, "/"):
		return pattern.Plain(func(name string) bool { return name == s }), nil
	}
	expression := s[1:]
	if len(expression) > 1 {
		expression = strings.TrimSuffix(expression, "/")
	}
	return expressionFilter(turns.Expression("queue", expression))
}
