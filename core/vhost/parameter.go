package vhost

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/rabbit"
)

// Parameter is a value that the vhost stores for a component. Only the limits mean something to the vhost itself.
type Parameter struct {
	Component, Name string
	Value           json.RawMessage
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

// Parameters returns all parameters, sorted by component and name.
func (v *VHost) Parameters() []Parameter {
	v.mu.RLock()
	defer v.mu.RUnlock()
	all := make([]Parameter, 0, len(v.parameters))
	for k, value := range v.parameters {
		all = append(all, Parameter{k.component, k.name, slices.Clone(value)})
	}
	slices.SortFunc(all, func(a, b Parameter) int {
		return cmp.Or(strings.Compare(a.Component, b.Component), strings.Compare(a.Name, b.Name))
	})
	return all
}

// Parameter returns the value of a parameter and whether it exists.
func (v *VHost) Parameter(component, name string) (json.RawMessage, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	value, ok := v.parameters[parameterKey{component, name}]
	return slices.Clone(value), ok
}

// SetParameter sets a parameter. It does not retain p.
func (v *VHost) SetParameter(p Parameter) (created bool, err error) {
	value, err := p.compact()
	if err != nil {
		return false, err
	}
	err = v.change(fixedMode(exclusive), func() (apply func(), err error) { return v.planSet(p.key(), value, &created) })
	return created, err
}

func (p *Parameter) key() parameterKey { return parameterKey{p.Component, p.Name} }

// planSet plans to set a parameter, and tells whether that creates it, unless created is nil. The caller holds mu.
func (v *VHost) planSet(k parameterKey, value []byte, created *bool) (apply func(), err error) {
	_, exists := v.parameters[k]
	if !exists && len(v.parameters) >= maxParameters {
		return nil, refuse(Precondition, "there are %d parameters in vhost '%s': at most %d are allowed", len(v.parameters), v.name, maxParameters)
	}
	if !v.fits(k, value) {
		return nil, refuse(Precondition, "the parameters in vhost '%s' have more than %d bytes then", v.name, MaxParameters)
	}
	v.logIfDurable(v.defineParameter(opSetParameter, k, value))
	return func() {
		if created != nil {
			*created = !exists
		}
		v.parameters[k] = value
		v.applyLimits()
	}, nil
}

// fits reports whether a parameter fits the total size, in place of its present value. The caller holds mu.
func (v *VHost) fits(k parameterKey, value []byte) bool {
	size := len(k.component) + len(k.name) + len(value)
	for other, value := range v.parameters {
		if other != k {
			size += len(other.component) + len(other.name) + len(value)
		}
	}
	return size <= MaxParameters
}

// ClearParameter deletes a parameter, and reports whether it existed.
func (v *VHost) ClearParameter(component, name string) (existed bool, err error) {
	k := parameterKey{component, name}
	err = v.change(fixedMode(exclusive), func() (apply func(), err error) { return v.planClear(k, &existed) })
	return existed, err
}

// planClear plans to delete a parameter, and tells whether there was one, unless existed is nil. The caller holds mu.
func (v *VHost) planClear(k parameterKey, existed *bool) (apply func(), err error) {
	if _, exists := v.parameters[k]; !exists {
		return nil, nil
	}
	v.logIfDurable(v.define(opClearParameter, k.fields()...))
	return func() {
		if existed != nil {
			*existed = true
		}
		delete(v.parameters, k)
		v.applyLimits()
	}, nil
}

// applyLimits puts the limits parameter in force. The caller holds mu.
func (v *VHost) applyLimits() {
	v.limits = Limits{}
	if value, ok := v.parameters[parameterKey{limitsComponent, limitsName}]; ok {
		v.limits, _ = parseLimits(value) // it was checked
	}
}

func (k *parameterKey) fields() []fieldRef {
	return []fieldRef{ref("component", &k.component), ref(fieldName, &k.name)}
}

func (v *VHost) defineParameter(op string, k parameterKey, value []byte) amqp.Table {
	text := string(value)
	return v.define(op, append(k.fields(), ref(fieldValue, &text))...)
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
