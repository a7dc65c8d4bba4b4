package mgmt

import (
	"fmt"
	"math"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// kindMissed is the kind of what stands in the stream for events that are not in it.
const kindMissed = "missed"

// eventObject is an event as the stream has it.
func eventObject(e *telemetry.Event) object {
	o := object{{"id", e.Seq}, {"kind", e.Kind.String()}, {"time", instant(e.At)}}
	switch {
	case e.Kind.OfMessage():
		return append(o, messageEvent(e)...)
	case e.Kind == telemetry.QueueExpired:
		return append(o, queueEvent(e)...)
	case e.Kind == telemetry.PolicyApplied:
		return append(o, policyEvent(e.Notice)...)
	case e.Kind == telemetry.AlarmRaised, e.Kind == telemetry.AlarmCleared:
		return append(o, append(object{{"alarm", e.Notice.Name}}, shortage(e.Notice.Disk)...)...)
	}
	return append(o, moduleEvent(e)...)
}

// shortage says what a disk lacks, as far as it is known.
func shortage(s telemetry.Shortage) object {
	if s.Needed == 0 {
		return nil
	}
	o := object{{"path", orNull(s.Path)}, {"free_bytes", s.Free}, {"needed_bytes", s.Needed}}
	if s.Free < 0 {
		o.set("free_bytes", nil)
	}
	return o
}

func messageEvent(e *telemetry.Event) object {
	id, idCut := e.MessageID()
	key, keyCut := e.RoutingKey()
	exchange, exchangeCut := e.Exchange()
	o := object{
		{"vhost", e.VHost},
		{"queue", e.Queue},
		{"strategy", e.Strategy},
		{"reason", e.Reason.String()},
		{"outcome", e.Outcome.String()},
		{"exchange", string(exchange)},
		{"routing_key", string(key)},
		{"message_id", orNull(string(id))},
		{"body_bytes", e.Size},
		{"enqueued", instant(e.Since)},
		{"deadline", instant(e.Deadline)},
		{"lateness_ms", lateness(e)},
		{"dead_letter_exchange", nil},
		{"dead_letter_routing_key", nil},
		{"policy_digest", nil},
	}
	if t := e.Target; t != nil {
		o.set("dead_letter_exchange", t.Exchange)
		if t.HasKey {
			o.set("dead_letter_routing_key", t.Key)
		}
	}
	if e.Digest != 0 {
		o.set("policy_digest", fmt.Sprintf("%016x", e.Digest))
	}
	var cut []string
	for _, p := range []struct {
		name string
		cut  bool
	}{{"exchange", exchangeCut}, {"routing_key", keyCut}, {"message_id", idCut}} {
		if p.cut {
			cut = append(cut, p.name)
		}
	}
	if cut != nil {
		o.add("cut", cut)
	}
	return o
}

// set gives a member that is there another value.
func (o object) set(name string, value any) {
	for i := range o {
		if o[i].name == name {
			o[i].value = value
		}
	}
}

func queueEvent(e *telemetry.Event) object {
	return object{
		{"vhost", e.VHost},
		{"queue", e.Queue},
		{"strategy", e.Strategy},
		{"reason", e.Reason.String()},
		{"last_use", instant(e.Since)},
		{"deadline", instant(e.Deadline)},
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
		o.add("until", instant(n.Until))
	case telemetry.BreakerClosed:
	default:
		o.add("previous_digest", orNull(n.Previous))
	}
	return append(o, member{"beside", orNull(n.Beside)})
}

// lateness is how much later than its deadline something expired, in milliseconds and a fraction; null if it did not expire, or
// that was decided before the broker was started.
func lateness(e *telemetry.Event) any {
	if e.Deadline == 0 || e.Underway < 0 || e.Reason != hook.ReasonExpired && e.Kind != telemetry.QueueExpired {
		return nil
	}
	const thousand = 1000
	return math.Round(float64(max(0, e.At.Sub(e.Deadline)-e.Underway))/thousand) / thousand
}

// orNull is null in place of an empty string.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
