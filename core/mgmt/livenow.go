package mgmt

import (
	"net/url"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/live"
	"github.com/curfewmq/curfew/core/vhost"
)

// readNow reads the parameters of the view now: there are none.
func readNow(a *liveHandlers, _ url.Values) (func(*watcher) maker, error) {
	return func(w *watcher) maker {
		of := newPresent(w)
		return func() (object, error) { return a.now(w, of), nil }
	}, nil
}

// present describes the view now for one reader.
type present struct {
	see   func(*vhost.VHost) bool // queues of these vhosts are named
	watch func(*vhost.VHost) bool // vhosts that are counted
	rates live.Rates
}

func newPresent(w *watcher) *present { return &present{see: w.sees(), watch: w.watches()} }

// now is the state of the broker for a user.
func (a *liveHandlers) now(w *watcher, of *present) object {
	var totals live.Totals
	var next any
	a.survey.Read(func(r *live.Reading) {
		totals = r.Totals(of.watch, of.see)
		next = totals.Next()
	})
	o := object{
		{"at", jsonobj.Instant(totals.At)},
		{"totals", totals.Messages()},
		{"counts", a.totals.objectTotals(w.request)},
		{"alarms", a.checks.alarmTexts()},
		{"next", next},
	}
	if per := of.rates.Rates(a.clock(), a.totals.activity(of.watch)...); per != nil {
		o.Add("rates", ratesObject(per))
	}
	if !isMonitor(w.user) {
		return o
	}
	a.late.AddTo(&o)
	return append(o, member{"node", a.condition()})
}

// activityNames are the names of the rates of the view now, in the order of activity.
var activityNames = [...]string{"publish", "deliver", "ack", "expired", "dead_lettered", "released"}

func ratesObject(per []float64) (o object) {
	for i, name := range activityNames {
		o.Add(name, per[i])
	}
	return o
}

// condition is the node's memory and disk space, their limits, and its uptime.
func (a *liveHandlers) condition() object {
	m := a.machine()
	return object{
		{"memory", m.Memory},
		{"memory_in_use", a.amqp.MemoryUsed()},
		{"memory_limit", max(a.amqp.MemoryLimit(), 0)},
		{"disk_free", m.DiskFree},
		{"disk_limit", a.store.DiskLimit()},
		{"uptime_ms", a.clock().Sub(a.started).Milliseconds()},
	}
}

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
func readTop(a *liveHandlers, q url.Values) (func(*watcher) maker, error) {
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
