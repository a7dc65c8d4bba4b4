// Package maxlength limits the ready messages of queues, and the sum of their bodies.
package maxlength

import (
	"math"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Config is the section plugins.maxlength; it has no keys.
type Config struct{}

// Factory makes the plugin.
var Factory = hook.NewFactory("maxlength", Config{}, func(Config) (hook.Plugin, error) { return plugin{}, nil })

// plugin implements [hook.Plugin].
type plugin struct{}

// The values of the setting overflow.
const (
	dropHead         = "drop-head"
	rejectPublish    = "reject-publish"
	rejectPublishDLX = "reject-publish-dlx"
)

func (plugin) Arguments() []hook.Argument {
	stronger := hook.TakeStronger // as in RabbitMQ, policies take precedence for quorum queues
	length, bytes := limit("maximum length"), limit("maximum length in bytes")
	bytes.QueueTypes = []string{"classic", "quorum", "stream"}
	return []hook.Argument{
		{Name: "x-max-length", Check: checkLimit, Order: 60, Policy: length},
		{Name: "x-max-length-bytes", Check: checkLimit, Order: 70, Policy: bytes},
		{Name: "x-overflow", Check: checkOverflow, Order: 110, Policy: &hook.PolicyKey{
			Check:    hook.PolicyOneOf("overflow value", dropHead, rejectPublish, rejectPublishDLX),
			Operator: true, Argument: hook.TakeWeaker, QuorumArgument: &stronger,
		}},
	}
}

// limit returns the policy key of a limit; the lowest limit applies.
func limit(what string) *hook.PolicyKey {
	return &hook.PolicyKey{
		Check: hook.PolicyInt(0, math.MaxInt64, what), Operator: true, Merge: hook.TakeLower, Argument: hook.TakeLower,
	}
}

func checkLimit(v any, _ hook.Args) error { return hook.CheckInt(v, 0, math.MaxInt64) }

func checkOverflow(v any, _ hook.Args) error {
	return hook.CheckOneOf(v, "invalid_overflow", dropHead, rejectPublish, rejectPublishDLX)
}

func (plugin) Attach(q hook.Queue) hook.Hooks {
	length, bytes := hook.IntSetting(q, "max-length"), hook.IntSetting(q, "max-length-bytes")
	if !length.Set() && !bytes.Set() {
		return hook.Hooks{Shared: true}
	}
	g := &gate{queue: q, length: length, bytes: bytes}
	switch overflow, _ := hook.StringSetting(q, "overflow"); {
	case overflow == rejectPublish:
		return hook.Hooks{OnEnqueue: g.refuse, Refuses: true, ReleaseLength: length, ReleaseBytes: bytes}
	case overflow == rejectPublishDLX && q.Type() == "classic": // RabbitMQ: quorum queues fall back to drop-head
		return hook.Hooks{OnEnqueue: g.drop, ReleaseLength: length, ReleaseBytes: bytes, DropReleased: true}
	}
	return hook.Hooks{Length: length, Bytes: bytes, Shared: true}
}

// gate refuses messages of a full queue.
type gate struct {
	queue         hook.Queue
	length, bytes hook.Limit
}

func (g *gate) refuse(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	g.each(now, ms, vs, hook.Verdict{Action: hook.Refuse})
}

func (g *gate) drop(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	g.each(now, ms, vs, hook.Verdict{Action: hook.Drop, Reason: hook.ReasonMaxLen, Nack: true})
}

// each gives the verdict full to the messages that would exceed the limits, as if they were enqueued one by one. A message that would leave
// an empty queue at once, delivered or expired, does not count.
func (g *gate) each(now hook.Instant, ms []hook.Message, vs []hook.Verdict, full hook.Verdict) {
	ready, bytes, credit := g.queue.Ready(), g.queue.ReadyBytes(), g.queue.Credit()
	for i := range ms {
		v, size := &vs[i], int64(ms[i].Size)
		switch {
		case v.Action != hook.Keep: // will not be enqueued
		case v.Hold > now: // counts when it is released
		case over(g.length, int64(ready)+1) || over(g.bytes, bytes+size):
			*v = full
		case ready == 0 && credit > 0:
			credit--
		case ready == 0 && v.Deadline != 0 && v.Deadline <= now: // expires at once
		default:
			ready, bytes = ready+1, bytes+size
		}
	}
}

func over(l hook.Limit, n int64) bool { return l.Set() && n > l.N() }
