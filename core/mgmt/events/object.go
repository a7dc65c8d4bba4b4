package events

import (
	"fmt"
	"math"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

type (
	object = jsonobj.Object
	member = jsonobj.Member
)

func describe(e *telemetry.Event) object {
	o := object{{"id", e.Seq}, {"kind", e.Kind.String()}, {"time", jsonobj.Instant(e.At)}}
	switch {
	case e.Kind.OfMessage():
		return append(o, messageEvent(e)...)
	case e.Kind == telemetry.QueueExpired:
		return append(o, queueEvent(e)...)
	case e.Kind == telemetry.ExchangeDeleted:
		return append(o, object{{"vhost", e.Notice.VHost}, {"exchange", e.Notice.Name}, {"messages", e.Notice.Messages}}...)
	case e.Kind == telemetry.VHostMoved:
		return append(o, object{{"vhost", e.Notice.VHost}, {"queues", e.Notice.Queues}, {"messages_lost", e.Notice.Messages}}...)
	case e.Kind == telemetry.PolicyApplied:
		return append(o, policyEvent(e.Notice)...)
	case e.Kind == telemetry.AlarmRaised, e.Kind == telemetry.AlarmCleared:
		o.Add("alarm", e.Notice.Name)
		return append(o, Shortage(e.Notice.Disk)...)
	}
	if r := e.Notice.Redrive; r != nil {
		return append(o, redriveEvent(e.Notice.VHost, r)...)
	}
	return append(o, moduleEvent(e)...)
}

func redriveEvent(vhost string, r *telemetry.RedriveEnd) object {
	return object{
		{"vhost", vhost},
		{"queue", r.Queue},
		{"redrive", r.ID},
		{"state", r.State},
		{"reason", jsonobj.OrNull(r.Reason)},
		{"moved", r.Moved},
		{"failed", r.Failed},
		{"took_ms", r.Took.Milliseconds()},
	}
}

// Shortage returns the shortage of a disk, as far as it is known. A negative number of free bytes is unknown. The member out_of_files says
// that file descriptors are missing, not space.
func Shortage(s telemetry.Shortage) jsonobj.Object {
	if s.Needed == 0 && !s.Files {
		return nil
	}
	free := any(s.Free)
	if s.Free < 0 {
		free = nil
	}
	o := object{{"path", jsonobj.OrNull(s.Path)}, {"free_bytes", free}, {"needed_bytes", s.Needed}}
	if s.Files {
		o.Add("out_of_files", true)
	}
	return o
}

func messageEvent(e *telemetry.Event) object {
	id, idCut := e.MessageID()
	key, keyCut := e.RoutingKey()
	exchange, exchangeCut := e.Exchange()
	o := append(
		whereabouts(e),
		member{"reason", e.Reason.String()},
		member{"outcome", e.Outcome.String()},
		member{"exchange", string(exchange)},
		member{"routing_key", string(key)},
		member{"message_id", jsonobj.OrNull(string(id))},
		member{"body_bytes", e.Size},
		member{"enqueued", jsonobj.Instant(e.Since)},
		member{"deadline", jsonobj.Instant(e.Deadline)},
		member{"lateness_ms", lateness(e)},
	)
	if telemetry.Moved(e.Reason) {
		o = append(o, movement(e)...)
	} else {
		o = append(o, letter(e)...)
	}
	if e.Overstayed && e.Reason == hook.ReasonExpired {
		o.Add("overstayed", true)
	}
	o = append(o, entered(e.Entered)...)
	o.Add("trace_id", jsonobj.OrNull(e.TraceID()))
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

// whereabouts names the queue that the message was in, or the exchange that held it.
func whereabouts(e *telemetry.Event) object {
	if e.Schedule {
		return object{{"vhost", e.VHost}, {"schedule", e.Queue}}
	}
	return object{{"vhost", e.VHost}, {"queue", e.Queue}, {"strategy", e.Strategy}}
}

// movement returns the time until which a message was held, or the target to which it was redriven.
func movement(e *telemetry.Event) object {
	if e.Reason != hook.ReasonRedriven {
		return object{{"held_until", jsonobj.Instant(e.Held)}}
	}
	exchange, key := target(e.Target)
	return object{{"target_exchange", exchange}, {"target_routing_key", key}}
}

// letter returns the target to which a message was dead-lettered, and the policy that gave it its deadline.
func letter(e *telemetry.Event) object {
	var digest any
	if e.Digest != 0 {
		digest = fmt.Sprintf("%016x", e.Digest)
	}
	exchange, key := target(e.Target)
	return object{{"dead_letter_exchange", exchange}, {"dead_letter_routing_key", key}, {"policy_digest", digest}}
}

// entered names the queues that a message went to.
func entered(queues *telemetry.Entered) object {
	switch {
	case queues == nil:
		return object{{"queues", nil}}
	case queues.More == 0:
		return object{{"queues", queues.Names}}
	}
	return object{{"queues", queues.Names}, {"more_queues", queues.More}}
}

// target returns a target's exchange and key, null where the target has none.
func target(t *hook.Target) (exchange, key any) {
	if t == nil {
		return nil, nil
	}
	if t.HasKey {
		key = t.Key
	}
	return t.Exchange, key
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

// lateness returns how long after its deadline a message or queue expired, or how long after the end of its hold a message was released, in
// milliseconds with a fraction. It is null for everything else, for releases on request, and for decisions from before the broker was
// started.
func lateness(e *telemetry.Event) any {
	switch {
	case e.Reason == hook.ReasonReleased && e.Held != 0:
		return milliseconds(e.At.Sub(e.Held))
	case e.Deadline == 0 || e.Underway < 0 || e.Reason != hook.ReasonExpired && e.Kind != telemetry.QueueExpired:
		return nil
	}
	return milliseconds(e.At.Sub(e.Deadline) - e.Underway)
}

// milliseconds returns a duration in milliseconds, rounded to microseconds; 0 for a negative one.
func milliseconds(d time.Duration) float64 {
	const thousand = 1000
	return math.Round(float64(max(0, d))/thousand) / thousand
}
