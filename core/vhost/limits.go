package vhost

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Limits limits the connections and queues of a vhost. The zero value has no limits.
type Limits struct {
	Connections, Queues hook.Limit
}

// As in RabbitMQ, limits are a parameter of the vhost, with this component and name.
const (
	limitsComponent = "vhost-limits"
	limitsName      = "limits"
)

// maxLimit is the highest limit that can be set.
const maxLimit = math.MaxInt32

// Limits returns the limits in force.
func (v *VHost) Limits() Limits {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.limits
}

// SetLimits replaces the limits. Existing connections and queues stay.
func (v *VHost) SetLimits(l Limits) error { return v.ChangeLimits(func(now *Limits) { *now = l }) }

// ChangeLimits changes the limits in force, one change after another. fn must not use the vhost.
func (v *VHost) ChangeLimits(fn func(*Limits)) error {
	return v.change(fixedMode(exclusive), func() (apply func(), err error) {
		l := v.limits
		fn(&l)
		p := Parameter{Component: limitsComponent, Name: limitsName, Value: l.value()}
		if l == (Limits{}) {
			return v.planClear(p.key(), nil)
		}
		value, err := p.compact()
		if err != nil {
			return nil, err
		}
		return v.planSet(p.key(), value, nil)
	})
}

// namedLimit is a limit and its name in the parameter.
type namedLimit struct {
	name  string
	limit *hook.Limit
}

func (l *Limits) named() [2]namedLimit {
	return [...]namedLimit{{"max-connections", &l.Connections}, {"max-queues", &l.Queues}}
}

func (l Limits) value() []byte {
	m := map[string]int64{}
	for _, n := range l.named() {
		if n.limit.Set() {
			m[n.name] = n.limit.N()
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // it is a map of numbers
	}
	return b
}

// Limits returns the limits that a parameter sets. ok is false if it is another parameter.
func (p *Parameter) Limits() (l Limits, ok bool) {
	if p.Component != limitsComponent {
		return Limits{}, false
	}
	l, err := parseLimits(p.Value)
	return l, err == nil
}

// parseLimits parses the value of the parameter. A negative limit is no limit.
func parseLimits(value []byte) (l Limits, err error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(value, &m); err != nil {
		return l, invalidParameter("limits should be an object, actually were " + rabbit.JSON(value))
	}
	for _, n := range l.named() {
		if raw, ok := m[n.name]; ok && err == nil {
			*n.limit, err = parseLimit(n.name, raw)
		}
		delete(m, n.name)
	}
	if len(m) == 0 {
		return l, err
	}
	unknown := make([]string, 0, len(m))
	for name, raw := range m {
		unknown = append(unknown, `{<<"`+name+`">>,`+rabbit.JSON(raw)+"}")
	}
	slices.Sort(unknown)
	return l, invalidParameter("Unrecognised terms [" + strings.Join(unknown, ",") + "] in limits")
}

func parseLimit(name string, raw []byte) (hook.Limit, error) {
	var n *int64 // nil for null
	if err := json.Unmarshal(raw, &n); err != nil || n == nil {
		return 0, invalidParameter(name + " should be a number, actually was " + rabbit.JSON(raw))
	}
	if *n > maxLimit {
		return 0, refuse(Precondition, "%s of %d: at most %d is allowed", name, *n, maxLimit)
	}
	return hook.LimitOf(*n), nil
}

// reached reports whether n is at or above the limit.
func reached(l hook.Limit, n int) bool { return l.Set() && int64(n) >= l.N() }

// checkQueueLimit refuses to create a queue at the limit, or in a vhost that was deleted or has moved. The caller holds mu.
func (v *VHost) checkQueueLimit(name string) error {
	if err := v.checkMoved(); err != nil {
		return err
	}
	if v.deleted {
		return refuse(NotFound, "no vhost '%s'", v.name)
	}
	if reached(v.limits.Queues, len(v.queues)+len(v.pending)) {
		return refuse(Precondition, "cannot declare queue '%s': queue limit in vhost '%s' (%d) is reached", name, v.name, v.limits.Queues.N())
	}
	return nil
}
