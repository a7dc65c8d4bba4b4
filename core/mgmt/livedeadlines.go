package mgmt

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/curfewmq/curfew/core/mgmt/live"
)

// readDeadlines reads the parameters of the view deadlines.
func readDeadlines(a *API, q url.Values) (func(*watcher) maker, error) {
	d, err := deadlinesView(q)
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
		own.Survey, own.See = a.survey, w.sees()
		own.SortBy(sort, reverse)
		if isMonitor(w.user) {
			own.Lateness = a.late
		}
		return own.State
	}, err
}

func deadlinesView(q url.Values) (d live.Deadlines, err error) {
	const most = 100
	if d.Page, d.Size, err = pageOf(q, most); err != nil {
		return d, err
	}
	if d.Buckets, err = live.ParseBuckets(q.Get("buckets")); err != nil {
		return d, err
	}
	if q.Has(partParameter) {
		d.KeysMember = keysMember
	}
	d.Queue, err = queueFilter(q.Get("queue"))
	return d, err
}

// queueFilter returns a filter for the queue of a name or, after a slash, for those that match an RE2 expression, which may end with
// another slash; nil for none.
func queueFilter(s string) (func(string) bool, error) {
	switch {
	case s == "":
		return nil, nil
	case len(s) > maxExpression:
		return nil, badRequest("queue has %d bytes: at most %d are allowed", len(s), maxExpression)
	case !strings.HasPrefix(s, "/"):
		return func(name string) bool { return name == s }, nil
	}
	expression := s[1:]
	if len(expression) > 1 {
		expression = strings.TrimSuffix(expression, "/")
	}
	re, err := regexp.Compile(expression)
	if err != nil {
		return nil, badRequest("queue: %v", err)
	}
	return re.MatchString, nil
}
