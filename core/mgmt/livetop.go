package mgmt

import (
	"net/url"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/live"
)

// topOrders are the sort keys of the view top.
var topOrders = map[string]func(*live.Entry) any{
	"rate": func(e *live.Entry) any {
		const tenths = 10
		return -int64((e.In + e.Out) * tenths)
	},
	"due": live.ByNext,
	"lag": func(e *live.Entry) any { return live.InstantKey(e.Oldest) },
	"messages": func(e *live.Entry) any {
		return -int64(e.Stats.Ready + e.Stats.Unacked + e.Stats.Held + e.Stats.Discarded)
	},
	"bytes": func(e *live.Entry) any { return -e.Stats.ReadyBytes },
}

// topNames are the names of topOrders, the usual one first.
var topNames = []string{"rate", "due", "lag", "messages", "bytes"}

// readTop reads the parameters of the view top: the view now, and a page of queues with the members that are known without asking the
// queues.
func readTop(a *API, q url.Values) (func(*watcher) maker, error) {
	page, size, err := pageOf(q, maxPage)
	if err != nil {
		return nil, err
	}
	sort, err := choiceOf(q, "sort", topNames, topNames[0])
	order := live.Order{Key: topOrders[sort]}
	return func(w *watcher) maker {
		of := newPresent(w)
		selection := live.NewSelection(of.see, nil)
		return func() (object, error) {
			o := a.now(w, of)
			err := selection.Read(a.survey, func(_ *live.Reading, matched []*live.Entry) {
				o = append(o, order.Rows(matched, page, size, topRow)...)
				o = append(o, member{"queues", len(matched)}, member{"page", page}, member{"page_count", max((len(matched)+size-1)/size, 1)})
			})
			return o, err
		}
	}, err
}

// topRow describes a queue as the last collection found it.
func topRow(e *live.Entry) object {
	s := &e.Stats
	return object{
		{"vhost", e.Config.VHost},
		{"name", e.Config.Name},
		{"ready", s.Ready},
		{"unacked", s.Unacked},
		{"held", s.Held},
		{"consumers", s.Consumers},
		{"bytes", s.ReadyBytes},
		{"in", e.In},
		{"out", e.Out},
		{"expired", s.Expired()},
		{"next_deadline", jsonobj.Instant(s.NextDeadline)},
		{"next_release", jsonobj.Instant(s.NextRelease)},
		{"oldest", jsonobj.Instant(e.Oldest)},
		{"strategy", e.Config.Strategy},
	}
}
