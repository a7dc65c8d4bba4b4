package flow

import (
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Recent is the summary of remembered events by target. Only events know the targets that strategies have chosen.
type Recent struct {
	queues map[place][]*observation
}

type place struct{ vhost, queue string }

// observation is the remembered events of a queue with one reason and target.
type observation struct {
	reason   hook.Reason
	target   hook.Target
	count    int
	outcomes [telemetry.Outcomes]int
	keys     map[string]int // messages by their own routing key; used if the target has no key
}

// Limits of the summary.
const (
	maxObserved = 20     // targets of a queue
	maxKeys     = 20     // of a target
	atOnce      = 64     // events
	maxPlaces   = 20_000 // queues
)

// Read reads all remembered events; ring may be nil. of reports whether a vhost matters.
func Read(ring *telemetry.Ring, of func(vhost string) bool) *Recent {
	r := &Recent{queues: map[place][]*observation{}}
	if ring == nil {
		return r
	}
	last, events := ring.Last(), make([]telemetry.Event, atOnce)
	for at := ring.First(); at < last; {
		n := ring.Read(at, events)
		if n == 0 {
			break
		}
		for i := range events[:n] {
			e := &events[i]
			at = e.Seq
			if e.Kind.OfMessage() && !e.Schedule && e.Target != nil && !telemetry.Moved(e.Reason) && of(e.VHost) {
				r.add(e)
			}
		}
	}
	return r
}

func (r *Recent) add(e *telemetry.Event) {
	at := place{e.VHost, e.Queue}
	all := r.queues[at]
	if all == nil && len(r.queues) >= maxPlaces {
		return
	}
	o := find(all, e.Reason, e.Target)
	if o == nil {
		if len(all) >= maxObserved {
			return
		}
		o = &observation{reason: e.Reason, target: *e.Target}
		r.queues[at] = append(all, o)
	}
	o.count++
	o.outcomes[e.Outcome]++
	if e.Target.HasKey {
		return
	}
	key, cut := e.RoutingKey()
	if _, known := o.keys[string(key)]; cut || !known && len(o.keys) >= maxKeys {
		return
	}
	if o.keys == nil {
		o.keys = map[string]int{}
	}
	o.keys[string(key)]++
}

func (r *Recent) of(vhost, queue string) []*observation { return r.queues[place{vhost, queue}] }

func find(all []*observation, r hook.Reason, t *hook.Target) *observation {
	for _, o := range all {
		if o.reason == r && o.target == *t {
			return o
		}
	}
	return nil
}
