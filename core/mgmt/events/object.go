package events

import (
	"fmt"
	"math"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

type (
	object = jsonobj.Object
	member = jsonobj.Member
)

// describe returns an event as an object.
func describe(e *telemetry.Event) object {
	o := object{{"id", e.Seq}, {"kind", e.Kind.String()}, {"time", jsonobj.Instant(e.At)}}
	switch {
	case e.Kind.OfMessage():
		return append(o, messageEvent(e)...)
	case e.Kind == telemetry.QueueExpired:
		return append(o, queueEvent(e)...)
	case e.Kind == telemetry.PolicyApplied:
		return append(o, policyEvent(e.Notice)...)
	case e.Kind == telemetry.AlarmRaised, e.Kind == telemetry.AlarmCleared:
		o.Add("alarm", e.Notice.Name)
		return append(o, Shortage(e.Notice.Disk)...)
	}
	return append(o, moduleEvent(e)...)
}

// Shortage returns what a disk lacks, as far as it is known. A negative number of free bytes is unknown.
func Shortage(s telemetry.Shortage) jsonobj.Object {
	if s.Needed == 0 {
		return nil
	}
	free := any(s.Free)
	if s.Free < 0 {
		free = nil
	}
	return object{{"path", jsonobj.OrNull(s.Path)}, {"free_bytes", free}, {"needed_bytes", s.Needed}}
}

func messageEvent(e *telemetry.Event) object {
	id, idCut := e.MessageID()
	key, keyCut := e.RoutingKey()
	exchange, exchangeCut := e.Exchange()
	var dlx, dlk, digest any
	if t := e.Target; t != nil {
		dlx = t.Exchange
		if t.HasKey {
			dlk = t.Key
		}
	}
	if e.Digest != 0 {
		digest = fmt.Sprintf("%016x", e.Digest)
	}
	o := object{
		{"vhost", e.VHost},
		{"queue", e.Queue},
		{"strategy", e.Strategy},
		{"reason", e.Reason.String()},
		{"outcome", e.Outcome.String()},
		{"exchange", string(exchange)},
		{"routing_key", string(key)},
		{"message_id", jsonobj.OrNull(string(id))},
		{"body_bytes", e.Size},
		{"enqueued", jsonobj.Instant(e.Since)},
		{"deadline", jsonobj.Instant(e.Deadline)},
		{"lateness_ms", lateness(e)},
		{"dead_letter_exchange", dlx},
		{"dead_letter_routing_key", dlk},
		{"policy_digest", digest},
	}
	var cut []string
	for i, was := range [...]bool{exchangeCut, keyCut, idCut} {
		if was {
			cut = append(cut, [...]string{"exchange", "routing_key", "message_id"}[i])
		}
	}
	if cut != nil {
		o.Add("cut", cut)
	}
	return o
}

func queueEvent(e *telemetry.Event) object {
	return object{
		{"vhost", e.VHost},
		{"queue", e.Queue},
		{"strategy", e.Strategy},
		{"reason", e.Reason.String()},
		{"last_use", jsonobj.Instant(e.Since)},
		{"deadline", jsonobj.Instant(e.Deadline)},
		{"lateness_ms", lateness(e)},
		{"messages_dropped", e.Messages},
		{"messages_dead_lettered", e.DeadLettered},
	}
}

func policyEvent(n *telemetry.Notice) object {
	action := "set"
	if n.Cleared {
		action = "cleared"
	}
	return object{{"vhost", n.VHost}, {"policy", n.Name}, {"operator", n.Operator}, {"action", action}, {"queues", n.Queues}}
}

func moduleEvent(e *telemetry.Event) object {
	n := e.Notice
	o := object{{"module", n.Name}, {"digest", n.Digest}}
	switch e.Kind {
	case telemetry.BreakerOpened:
		o.Add("until", jsonobj.Instant(n.Until))
	case telemetry.BreakerClosed:
	default:
		o.Add("previous_digest", jsonobj.OrNull(n.Previous))
	}
	return append(o, member{"beside", jsonobj.OrNull(n.Beside)})
}

// lateness returns how long after its deadline something expired, in milliseconds with a fraction. It is null for what did not
// expire, and for what was decided before the broker was started.
func lateness(e *telemetry.Event) any {
	if e.Deadline == 0 || e.Underway < 0 || e.Reason != hook.ReasonExpired && e.Kind != telemetry.QueueExpired {
		return nil
	}
	const thousand = 1000
	return math.Round(float64(max(0, e.At.Sub(e.Deadline)-e.Underway))/thousand) / thousand
}
