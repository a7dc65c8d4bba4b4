package mgmt

import (
	"net/url"
	"strings"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/live"
	"github.com/curfewmq/curfew/core/mgmt/probe"
	"github.com/curfewmq/curfew/core/session"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// readNow reads the parameters of the view now: there are none.
func readNow(a *API, _ url.Values) (func(*watcher) maker, error) {
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
func (a *API) now(w *watcher, of *present) object {
	var totals live.Totals
	var next any
	a.survey.Read(func(r *live.Reading) {
		totals = r.Totals(of.watch, of.see)
		next = totals.Next()
	})
	o := object{
		{"at", jsonobj.Instant(totals.At)},
		{"totals", totals.Messages()},
		{"counts", a.objectTotals(w.request)},
		{"alarms", a.alarmTexts()},
		{"next", next},
	}
	if per := of.rates.Rates(a.Clock(), a.activity(of.watch)...); per != nil {
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

// activity counts the events in vhosts so far.
func (a *API) activity(watch func(*vhost.VHost) bool) []uint64 {
	by := a.channelCounters()
	var sum session.Counters
	var expired, deadLettered, released uint64
	for _, v := range a.Store.VHosts() {
		if !watch(v) {
			continue
		}
		own := by[v.Name()]
		sum.Add(&own)
		for _, n := range v.Stats().Removals {
			for reason := range n {
				switch {
				case hook.Reason(reason) == hook.ReasonReleased:
					released += n[reason][telemetry.Ready] + n[reason][telemetry.Routed]
				case !telemetry.Moved(hook.Reason(reason)):
					deadLettered += n[reason][telemetry.DeadLettered]
				}
			}
			for _, count := range n[hook.ReasonExpired] {
				expired += count
			}
		}
	}
	h := sum.AllDeliveries()
	delivered := h[session.Delivered] + h[session.DeliveredNoAck] + h[session.Got] + h[session.GotNoAck]
	return []uint64{sum.Published, delivered, h[session.Acked], expired, deadLettered, released}
}

// condition is the node's memory and disk space, their limits, and its uptime.
func (a *API) condition() object {
	m := a.Machine()
	return object{
		{"memory", m.Memory},
		{"memory_in_use", a.AMQP.MemoryUsed()},
		{"memory_limit", max(a.AMQP.MemoryLimit(), 0)},
		{"disk_free", m.DiskFree},
		{"disk_limit", a.Store.DiskLimit()},
		{"uptime_ms", a.Clock().Sub(a.started).Milliseconds()},
	}
}

// alarmTexts describes the raised alarms, and what each of them means for clients.
func (a *API) alarmTexts() []object {
	all := []object{}
	for _, name := range a.Alarms() {
		all = append(all, object{{"name", name}, {"text", a.alarmText(name)}})
	}
	return all
}

// alarmText returns the meaning of an alarm.
func (a *API) alarmText(name string) string {
	switch name {
	case "memory":
		return "The broker has more memory than its limit: publishers wait until consumers have taken messages."
	case probe.Draining:
		return "The broker is being drained: publishers wait, and no client connects, until it is stopped or the drain is ended."
	case probe.Alone:
		return "Fewer than two nodes of the cluster reach one another, or they are agreeing on an owner. Nobody is served here until they do."
	case probe.Clock:
		return "The clock differs too much from those of the other nodes. This node owns nothing until its clock is set and it is started again."
	case "disk":
		if short := a.Store.Shortage(); short != nil && short.Files {
			return "No more files can be opened: publishers wait until clients close connections. Raise the limit of open files (ulimit -n), or lower limits.connections."
		}
		return "There is less free disk space than the limit: publishers wait until there is more."
	}
	if strings.HasPrefix(name, "shard ") {
		return "The log " + name + " cannot be written any more, and its queues have stopped. See the broker's log, and restart it."
	}
	return name
}
