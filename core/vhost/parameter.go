package vhost

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Parameter is a value that the vhost stores for a component. Only the limits mean something to the vhost itself.
type Parameter struct {
	Component, Name string
	Value           json.RawMessage
}

// Parameters are the parameters of a vhost, and the limits among them.
type Parameters struct {
	*rules
	mu      *sync.RWMutex // guards the fields below
	changes *changes
	values  map[parameterKey]json.RawMessage
	limits  Limits // in values, parsed
}

type parameterKey struct{ component, name string }

const (
	maxParameters = 10_000
	maxParameter  = 64 << 10 // bytes of a value
	// MaxParameters limits the names and values of all parameters of a vhost, or of all global ones, in bytes: they stay in
	// memory, and every compaction rewrites them.
	MaxParameters = 16 << 20
)

// Check refuses an invalid parameter.
func (p *Parameter) Check() error {
	_, err := p.compact()
	return err
}

// compact checks the parameter, and returns its value without spaces.
func (p *Parameter) compact() ([]byte, error) {
	if err := p.checkNames(); err != nil {
		return nil, err
	}
	value, err := CompactJSON(p.Value)
	if err != nil {
		return nil, refuse(Precondition, "parameter '%s' of component '%s': %v", p.Name, p.Component, err)
	}
	if p.Component == limitsComponent {
		_, err = parseLimits(value)
	}
	return value, err
}

func (p *Parameter) checkNames() error {
	switch {
	case p.Component == "policy" || p.Component == "operator_policy":
		return refuse(Precondition, "component '%s': policies are no parameters here", p.Component)
	case p.Component == limitsComponent && p.Name != limitsName:
		return refuse(Precondition, "component '%s': the only parameter is '%s'", p.Component, limitsName)
	}
	for _, name := range []string{p.Component, p.Name} {
		if name == "" || len(name) > rabbit.MaxName || !utf8.ValidString(name) {
			return refuse(Precondition, "parameter '%s' of component '%s': a name is UTF-8 of 1 to %d bytes", p.Name, p.Component, rabbit.MaxName)
		}
	}
	return nil
}

// CompactJSON checks that the value of a parameter is JSON and not too large, and returns it without spaces.
func CompactJSON(value []byte) ([]byte, error) {
	if len(value) > maxParameter {
		return nil, refuse(Precondition, "value of %d bytes: at most %d are allowed", len(value), maxParameter)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, value); err != nil || !utf8.Valid(value) {
		return nil, refuse(Precondition, "value is not JSON")
	}
	return b.Bytes(), nil
}

// invalidParameter is RabbitMQ's error for a value that its component refuses.
func invalidParameter(line string) error {
	return refuse(Precondition, "Validation failed\n\n%s\n", line)
}

// All returns all parameters, sorted by component and name.
func (ps *Parameters) All() []Parameter {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	all := make([]Parameter, 0, len(ps.values))
	for k, value := range ps.values {
		all = append(all, Parameter{k.component, k.name, slices.Clone(value)})
	}
	slices.SortFunc(all, func(a, b Parameter) int {
		return cmp.Or(strings.Compare(a.Component, b.Component), strings.Compare(a.Name, b.Name))
	})
	return all
}

// Get returns the value of a parameter and whether it exists.
func (ps *Parameters) Get(component, name string) (json.RawMessage, bool) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	value, ok := ps.values[parameterKey{component, name}]
	return slices.Clone(value), ok
}

// Set sets a parameter. It does not retain p.
func (ps *Parameters) Set(p Parameter) (created bool, err error) {
	value, err := p.compact()
	if err != nil {
		return false, err
	}
	err = ps.changes.make(fixedMode(exclusive), func() (apply func(), err error) { return ps.planSet(p.key(), value, &created) })
	return created, err
}

func (p *Parameter) key() parameterKey { return parameterKey{p.Component, p.Name} }

// planSet plans to set a parameter, and tells whether that creates it, unless created is nil. The caller holds mu.
func (ps *Parameters) planSet(k parameterKey, value []byte, created *bool) (apply func(), err error) {
	_, exists := ps.values[k]
	if !exists && len(ps.values) >= maxParameters {
		return nil, refuse(Precondition, "there are %d parameters in vhost '%s': at most %d are allowed", len(ps.values), ps.name, maxParameters)
	}
	if !ps.fits(k, value) {
		return nil, refuse(Precondition, "the parameters in vhost '%s' have more than %d bytes then", ps.name, MaxParameters)
	}
	ps.changes.addIfDurable(ps.changes.defineParameter(opSetParameter, k, value))
	return func() {
		if created != nil {
			*created = !exists
		}
		ps.values[k] = value
		ps.applyLimits()
	}, nil
}

// fits reports whether a parameter fits the total size, in place of its present value. The caller holds mu.
func (ps *Parameters) fits(k parameterKey, value []byte) bool {
	size := len(k.component) + len(k.name) + len(value)
	for other, value := range ps.values {
		if other != k {
			size += len(other.component) + len(other.name) + len(value)
		}
	}
	return size <= MaxParameters
}

// Clear deletes a parameter, and reports whether it existed.
func (ps *Parameters) Clear(component, name string) (existed bool, err error) {
	k := parameterKey{component, name}
	err = ps.changes.make(fixedMode(exclusive), func() (apply func(), err error) { return ps.planClear(k, &existed) })
	return existed, err
}

// planClear plans to delete a parameter, and tells whether there was one, unless existed is nil. The caller holds mu.
func (ps *Parameters) planClear(k parameterKey, existed *bool) (apply func(), err error) {
	if _, exists := ps.values[k]; !exists {
		return nil, nil
	}
	ps.changes.addIfDurable(ps.changes.define(opClearParameter, k.fields()...))
	return func() {
		if existed != nil {
			*existed = true
		}
		delete(ps.values, k)
		ps.applyLimits()
	}, nil
}

func (ps *Parameters) restore(values map[parameterKey]json.RawMessage) {
	ps.values = values
	ps.applyLimits()
}

// definers returns functions that append the definitions of the parameters. The caller holds mu.
func (ps *Parameters) definers() (all []definitionAppender) {
	for k, value := range ps.values {
		all = append(all, func(b []byte) []byte {
			return amqp.AppendTable(b, ps.changes.defineParameter(opSetParameter, k, value))
		})
	}
	return all
}

// limitsNow returns the limits in force. The caller holds mu.
func (ps *Parameters) limitsNow() Limits { return ps.limits }

// applyLimits puts the limits parameter in force. The caller holds mu.
func (ps *Parameters) applyLimits() {
	ps.limits = Limits{}
	if value, ok := ps.values[parameterKey{limitsComponent, limitsName}]; ok {
		ps.limits, _ = parseLimits(value) // it was checked
	}
}

func (k *parameterKey) fields() []fieldRef {
	return []fieldRef{ref("component", &k.component), ref(fieldName, &k.name)}
}

func (d definer) defineParameter(op string, k parameterKey, value []byte) amqp.Table {
	text := string(value)
	return d.define(op, append(k.fields(), ref(fieldValue, &text))...)
}

// parameter applies a definition that sets or clears a parameter.
func (d *Definitions) parameter(def *definition.Definition) error {
	var k parameterKey
	err := read(def, k.fields()...)
	if err != nil || def.Op == opClearParameter {
		delete(d.parameters, k)
		return err
	}
	var value string
	err = read(def, ref(fieldValue, &value))
	d.parameters[k] = json.RawMessage(value)
	return err
}

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
func (ps *Parameters) Limits() Limits {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	return ps.limits
}

// SetLimits replaces the limits. Existing connections and queues stay.
func (ps *Parameters) SetLimits(l Limits) error {
	return ps.ChangeLimits(func(now *Limits) { *now = l })
}

// ChangeLimits changes the limits in force, one change after another. fn must not use the vhost.
func (ps *Parameters) ChangeLimits(fn func(*Limits)) error {
	return ps.changes.make(fixedMode(exclusive), func() (apply func(), err error) {
		l := ps.limits
		fn(&l)
		p := Parameter{Component: limitsComponent, Name: limitsName, Value: l.value()}
		if l == (Limits{}) {
			return ps.planClear(p.key(), nil)
		}
		value, err := p.compact()
		if err != nil {
			return nil, err
		}
		return ps.planSet(p.key(), value, nil)
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

func reached(l hook.Limit, n int) bool { return l.Set() && int64(n) >= l.N() }
